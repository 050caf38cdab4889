"""Hand-written forward and backward passes, each beside a plain twin that says the same in torch.

Model code calls a function from here, for example ``kernels.multi_head_attention``, which chooses
between the fast kernel and its twin. To change a model nobody needs to understand a kernel: set
``DRAGOMAN_KERNELS=plain``, or in Python ``kernels.use("plain")`` or ``with kernels.plain(): …``,
and every model runs on ordinary torch. The results are the same up to rounding (dropout draws other
random numbers). A test compares each pair in value and gradient; a new kernel is a new file here
that lists its pairs in ``TWINS``. May import the ground and ``process``.
"""

from dragoman.nn.kernels._precision import autocasts, full_precision
from dragoman.nn.kernels._switch import Mode, Twin, fast, is_fast, plain, use
from dragoman.nn.kernels.additive import additive_score, loop_additive_score
from dragoman.nn.kernels.attention import multi_head_attention, multi_head_self_attention
from dragoman.nn.kernels.cross_entropy import cross_entropy_of_logits, projected_cross_entropy
from dragoman.nn.kernels.deferred import deferred_gradients, loop_linear, loop_weighted_sum
from dragoman.nn.kernels.dropout import apply_dropout, dropout_add, relu_dropout
from dragoman.nn.kernels.linear import linear, linear_with_bias
from dragoman.nn.kernels.lstm import loop_lstm_step, padded_lstm
from dragoman.nn.kernels.tanh import quick_tanh
from dragoman.nn.kernels.time_steps import unbind_steps

__all__ = [
    "Mode",
    "Twin",
    "additive_score",
    "apply_dropout",
    "autocasts",
    "cross_entropy_of_logits",
    "deferred_gradients",
    "dropout_add",
    "fast",
    "full_precision",
    "is_fast",
    "linear",
    "linear_with_bias",
    "loop_additive_score",
    "loop_linear",
    "loop_lstm_step",
    "loop_weighted_sum",
    "multi_head_attention",
    "multi_head_self_attention",
    "padded_lstm",
    "plain",
    "projected_cross_entropy",
    "quick_tanh",
    "relu_dropout",
    "unbind_steps",
    "use",
]
