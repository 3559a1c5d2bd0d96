"""What was tried for bars that are missed, by the name of the bar; the page of results shows it beside the miss."""

from __future__ import annotations

TRIED: dict[str, str] = {
    "binary-gpu-compiled": (
        "0.259 times (1.48 ms), which is also the time of compiled BCE; 1.45 ms (0.253 times) with "
        '`mode="max-autotune-no-cudagraphs"`. It sums both sides of the threshold, so that small counts keep their '
        "digits; while it summed one side it took 1.47 ms. "
        "Our own Triton kernels take 1.28 ms, but as operators within the compiled function the whole took 1.77 ms, "
        "because torch calls such operators from Python, before the first kernel and between the two; an eager pass "
        "took 1.61 ms in the same run. `torch.library.custom_op` took 1.93 ms, and with `torch.library.triton_op` the "
        "compiler's version of the kernel of counts took 2.3 ms. Reading and writing memory alone takes 1.25 ms, so "
        "the bar leaves 0.18 ms for everything else, and the guards and wrappers of a compiled function take 0.17 to "
        "0.3 ms."
    ),
    "multiclass-gpu-compiled": (
        "1.59 to 1.66 times in three runs (850 to 919 us), where 0.1.0 took 3.5 times; eager 600 to 655 us. With "
        '`mode="max-autotune-no-cudagraphs"` 790 us (1.43 times) in one run and 860 us in another; with '
        "`cpp_wrapper` 969 us. A pass is one operator each way, "
        "and its kernels take 365 us: what the counts keep of each sample made the gradient's kernel 174 us instead of "
        "216, and programs zero their own sums. The rest is the compiled function: the GPU waits for its guards and "
        "wrappers before the first kernel, and for autograd and the wrappers of the backward pass before the last "
        "one, together some 500 us; cross_entropy compiled takes 599 to 655 us, more than eager. An operator with a "
        "registered backward took 987 us. Not tried: the gradient computed in the forward pass, whose memory would "
        "double, because a compiled graph has to copy it to multiply it."
    ),
    "weightedbceloss-256": (
        "0.99 to 1.05 times `BCEWithLogitsLoss(pos_weight=...)` from run to run. Torch's own function with our checks "
        "took 1.07 times, and loses the gradient of logits beyond 17. The gradient is now computed in the forward "
        "pass, with few arguments and constants that are tensors already."
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
