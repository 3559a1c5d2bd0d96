"""What was tried for bars that are missed, by the name of the bar; the page of results shows it beside the miss."""

from __future__ import annotations

TRIED: dict[str, str] = {
    "binary-gpu-compiled": (
        "Of 0.259 times (1.48 ms), 70 us were the guards: a compiled function checks at each call what was read while "
        "it was traced. The loss is one operation of the graph now, with 60 guards instead of 180. A second compiled "
        "loss in the same process costs 40 to 90 us again, because torch looks through the graphs of both; each is "
        "timed alone."
    ),
    "batch-4096-gpu": (
        "2.64 times (459 us v 174 us), where it was 5.5 times with 50 kernels and 4.0 times with 22. The formula is "
        "evaluated by dual numbers of tensors without a graph, and compiled programs are launched without Triton's "
        "search for them. What is left is host time: 6 us for an operation of torch."
    ),
    "multiclass-gpu-eager": (
        "1.9 times, where it was 3.6 times. The kernels take 442 us of 1.0 ms, and cross-entropy 533 us. The host is "
        "the limit: three launches of Triton programs with 17 to 38 arguments and 27 small operations."
    ),
    "threshold-gpu": (
        "9.4 times the sort (1.2 ms v 127 us), with 13 waits of the host for the GPU; today's code waits 3 times and "
        "was not measured. A search has about 70 operations, each launched in 6 to 18 us; 3.3 times needs one program."
    ),
    "multiclass-gpu-compiled": (
        "1.24 to 1.6 times, depending on the host: kernels take 365 us, and the rest is the compiled function, whose "
        "guards and wrappers the GPU waits for. Timed beside other compiled losses it took 1.59 to 1.72 times."
    ),
    "weightedbceloss-256": (
        "0.99 to 1.05 times `BCEWithLogitsLoss(pos_weight=...)` from run to run. Torch's own function with our checks "
        "took 1.07 times, and loses the gradient of logits beyond 17. The gradient is now computed in the forward "
        "pass, with few arguments and constants that are tensors already."
    ),
    "weightedbceloss-cpu": (
        "0.94 to 1.09 times in five runs, where the machine's speed changed by a third. Adding the products with "
        "`mul_` and `sum` takes 0.95 times in a run in which `torch.dot` takes 1.02 times, and keeps two more digits "
        "of equal logits. Blocks of 2^19 logits took 0.93 of the time for this loss, but not for FocalLoss."
    ),
    "batch-256x10": (
        "2.75 to 3.1 times on two busy cores, where it was 3.4 times. With NumPy, the counts and the gradient take 82 "
        "us of 290, where they took 119: arrays have one row per class, labels are looked up by position, and only "
        "the largest probability of a sample is tested for the last piece of the step. `topk` takes 9 us where two "
        "`argmax` take 7; `np.copyto` instead of `np.where` gained nothing. The checks take 13 us; the rest is calls "
        "of autograd, of the module and of the formula."
    ),
    "multiclass-cpu-time": (
        "The two largest probabilities come from two maxima instead of a `topk`, all arrays of a block are in memory "
        "that is used again, and the probabilities of true classes are looked up."
    ),
}
