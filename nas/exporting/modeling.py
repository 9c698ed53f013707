"""The transformer of an exported folder, as a template that is copied and never imported.

    x = E[token] + P[position];  x = x + attention(norm(x));  x = x + W_2 act(W_1 norm(x))

E and P are learned embeddings. ``generate`` recomputes all tokens for each new token, without a
cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention  # noqa: F401
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput, MaskedLMOutput
from transformers.utils import can_return_tuple

Attention: Any = nn.Identity  # stands for the mechanism's class
StandardAttention: Any = nn.Identity


# Below this line everything is copied.
class MechanismConfig(PretrainedConfig):
    """Sizes of the transformer, and a description of its attention mechanism.

    Args:
        mechanism_layers: indices of the layers with the mechanism; None for all layers. The
            remaining layers have standard attention.
        is_causal: whether a token sees only itself and earlier tokens.
        mechanism: genome, digest and formula of the mechanism; the model does not read them.
    """

    model_type = "nas_mechanism"

    def __init__(
        self,
        vocab_size: int = 256,
        hidden_size: int = 64,
        num_hidden_layers: int = 2,
        num_attention_heads: int = 4,
        intermediate_size: int = 128,
        hidden_act: str = "gelu",
        hidden_dropout_prob: float = 0.0,
        max_position_embeddings: int = 512,
        initializer_range: float = 0.02,
        final_norm: bool = True,
        is_causal: bool = False,
        mechanism_layers: list[int] | None = None,
        mechanism: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.hidden_dropout_prob = hidden_dropout_prob
        self.max_position_embeddings = max_position_embeddings
        self.initializer_range = initializer_range
        self.final_norm = final_norm
        self.is_causal = is_causal
        if mechanism_layers is None:
            mechanism_layers = list(range(num_hidden_layers))
        self.mechanism_layers = mechanism_layers
        self.mechanism = mechanism or {}
        super().__init__(**{"tie_word_embeddings": False, "use_cache": False, **kwargs})


class MechanismLayer(nn.Module):
    """A transformer layer: attention and feed-forward network, each with a norm and a residual."""

    def __init__(self, config: MechanismConfig, index: int) -> None:
        super().__init__()
        kind = Attention if index in config.mechanism_layers else StandardAttention
        dim, hidden = config.hidden_size, config.intermediate_size
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = kind(dim, config.num_attention_heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden), ACT2FN[config.hidden_act], nn.Linear(hidden, dim)
        )
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.is_causal = config.is_causal
        for part in self.attention.modules():
            part.is_initialised = not self.attention_norm.weight.is_meta

    def forward(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """Return the layer's features, which have the shape of x: (batch, tokens, dim).

        Args:
            padding: (batch, tokens), True at padding; None without padding.
        """
        out = self.attention(
            self.attention_norm(x), key_padding_mask=padding, is_causal=self.is_causal
        )
        x = x + self.dropout(out)
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class MechanismPreTrainedModel(PreTrainedModel):
    """Base class of the models, which defines their configuration class and initial weights."""

    config_class = MechanismConfig
    base_model_prefix = "model"
    _no_split_modules = ["MechanismLayer"]
    accepts_loss_kwargs = False  # the loss is a mean over the batch, so Trainer must scale it

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise a module without loaded weights, unless a mechanism has initialised it."""
        if getattr(module, "is_initialised", False):
            return
        is_norm = isinstance(module, nn.LayerNorm)
        for name, weight in module.named_parameters(recurse=False):
            if name == "bias":
                nn.init.zeros_(weight)
            elif is_norm:
                nn.init.ones_(weight)
            else:
                nn.init.normal_(weight, std=self.config.initializer_range)


class MechanismModel(MechanismPreTrainedModel):
    """The transformer without a head, which computes features of tokens after the last layer."""

    def __init__(self, config: MechanismConfig) -> None:
        super().__init__(config)
        dim = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, dim)
        self.embed_positions = nn.Embedding(config.max_position_embeddings, dim)
        layers = [MechanismLayer(config, index) for index in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(dim) if config.final_norm else nn.Identity()
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embedding."""
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Return the features (batch, tokens, dim) after the last layer.

        Args:
            attention_mask: (batch, tokens), 1 at tokens, 0 at padding at the start or the end.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("expected either input_ids or inputs_embeds")
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if x.shape[1] > self.config.max_position_embeddings:
            most = self.config.max_position_embeddings
            raise ValueError(f"found {x.shape[1]} tokens; expected at most {most}")
        padding = None
        if attention_mask is not None:
            if attention_mask.dim() != 2:
                raise ValueError("attention_mask: expected (batch, tokens)")
            # Positions count from the first token, in a mechanism too, so padding goes last.
            padding, order = (attention_mask == 0).sort(dim=1, stable=True)
            rows = torch.arange(len(x), device=x.device)[:, None]
            x = x[rows, order]
        x = x + self.embed_positions(torch.arange(x.shape[1], device=x.device))
        hidden = [x]
        for layer in self.layers:
            x = layer(x, padding)
            hidden.append(x)
        x = self.norm(x)
        if padding is not None:
            original = order.argsort(dim=1)
            x, hidden = x[rows, original], [state[rows, original] for state in hidden]
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        states = tuple(hidden) if output_hidden_states else None
        return BaseModelOutput(last_hidden_state=x, hidden_states=states)


class MechanismWithHead(MechanismPreTrainedModel):
    """The transformer with a linear layer (head) that gives a logit for each vocabulary token."""

    output_type = MaskedLMOutput

    def __init__(self, config: MechanismConfig) -> None:
        super().__init__(config)
        self.model = MechanismModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy of logits at positions whose label is not -100."""
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutput | MaskedLMOutput:
        """Return logits (batch, tokens, vocabulary), and the loss if there are labels."""
        features = self.model(input_ids, attention_mask, inputs_embeds, output_hidden_states)
        logits = self.lm_head(features.last_hidden_state)
        loss = None if labels is None else self.loss(logits, labels)
        return self.output_type(loss=loss, logits=logits, hidden_states=features.hidden_states)


class MechanismForCausalLM(MechanismWithHead, GenerationMixin):
    """Predicts the next token. Labels are the input tokens; the loss shifts them by one."""

    output_type = CausalLMOutput

    def __init__(self, config: MechanismConfig) -> None:
        if not config.is_causal:
            raise ValueError("this mechanism was exported to see later tokens; see is_causal")
        super().__init__(config)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy of the prediction of each token's successor."""
        return super().loss(logits[:, :-1], labels[:, 1:])

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the inputs of one step of ``generate``: all tokens so far, without a cache."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}


class MechanismForMaskedLM(MechanismWithHead):
    """Predicts the tokens at masked positions; labels are -100 at all other positions."""
