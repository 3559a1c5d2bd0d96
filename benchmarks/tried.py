"""What was tried for bars that are missed, by the name of the bar; the page of results shows it beside the miss."""

from __future__ import annotations

TRIED: dict[str, str] = {
    "binary-gpu-compiled": (
        "The two kernels of the compiler take 1.42 ms, and starting the compiled function takes 0.17 to 0.3 ms. Our "
        "own Triton kernels as operators within the compiled function take 1.29 ms, but the whole took 1.93 ms, "
        "because such an operator is started from Python (`torch.library.custom_op`); with `torch.library.triton_op` "
        "the compiler's version of the kernel of counts took 2.3 ms. Reading and writing memory alone takes 1.25 ms, "
        "so the bar leaves 0.19 ms for everything else."
    ),
    "weightedbceloss-256": (
        "0.99 to 1.05 times `BCEWithLogitsLoss(pos_weight=...)` from run to run. Torch's own function with our checks "
        "took 1.07 times, and loses the gradient of logits beyond 17. The gradient is now computed in the forward "
        "pass, with few arguments and constants that are tensors already."
    ),
    "multiclass-cpu-time": (
        "The two largest probabilities come from two maxima instead of a `topk`, all arrays of a block are in memory "
        "that is used again, and the probabilities of true classes are looked up."
    ),
    "binary-cpu-eager": (
        "Blocks of 2^14 to 2^19 logits were tried. On one thread the largest took 1.19 to 1.23 times BCE; with two "
        "threads each of the 30 operations of a block starts and joins the threads, where BCE has about 10."
    ),
}
