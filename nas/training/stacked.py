"""Models of one genome as one model, each with its own weights, images and random numbers.

    weights (s, ...), images (s, b, ...) -> logits (s, b, classes)

Every operation runs once for all of them, by torch.vmap. What a model draws is its own affair too:
dropout and augmentation take each model's numbers from that model's stream, where there is one.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from nas.tasks.backbone import Dropout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nas.tasks.backbone import Backbone
    from nas.training.part import Part


class Noise:
    """A stream of random numbers: within, torch's global generator stands in it.

    Args:
        state: of the generator where the stream begins.
    """

    def __init__(self, state: Tensor) -> None:
        self._state = state

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Go on where the stream was left."""
        torch.set_rng_state(self._state)
        yield
        self._state = torch.get_rng_state()


class Stacked(nn.Module):
    """Models of one genome as one: weights (s, ...), each applied to images of its own.

    Args:
        models: of equal shapes, on one device; they are copied.
        noises: a stream for each; none, and all draw from the device's generator.
    """

    def __init__(self, models: Sequence[Backbone], noises: Sequence[Noise]) -> None:
        super().__init__()
        wrapped: list[nn.Module] = [_Classifier(model) for model in models]
        weights, self.extras = stack_module_state(wrapped)
        self.names, self.weights = list(weights), nn.ParameterList(weights.values())
        self.noises = noises
        # Whose code runs; its own weights stay as they are.
        self.one = copy.deepcopy(wrapped[0]).requires_grad_(False)
        for name, module in wrapped[0].named_modules():
            if isinstance(module, Dropout):
                own = [copy.deepcopy(model.get_submodule(name)) for model in wrapped]
                self.one.set_submodule(name, _DropoutApart(own, noises))

    def __len__(self) -> int:
        return len(self.weights[0])

    def forward(self, cut: Float[Tensor, "..."], is_shared: bool) -> Float[Tensor, "s b c"]:
        """Logits of normalised patches: (s, b, n, cpp), or (b, n, cpp) that all share."""

        def classify(weights: dict[str, Tensor], extras: dict[str, Tensor], x: Tensor) -> Tensor:
            logits: Tensor = functional_call(self.one, (weights, extras), (x,))
            return logits

        weights = dict(zip(self.names, self.weights, strict=True))
        return torch.vmap(classify, (0, 0, None if is_shared else 0))(weights, self.extras, cut)

    def batch(self, part: Part, chosen: Int[Tensor, "b s"]) -> Float[Tensor, "s b n cpp"]:
        """The images that each model's column names, augmented by its own stream."""
        if not (part.is_augmented and self.noises):
            all_: Tensor = part.batch(chosen.t().flatten())
            return all_.view(len(self), len(chosen), *all_.shape[1:])
        batches = []
        for noise, own in zip(self.noises, chosen.unbind(1), strict=True):
            with noise():
                batches.append(part.batch(own))
        return torch.stack(batches)

    def return_to(self, models: Sequence[Backbone]) -> None:
        """Give the models the weights and buffers that they have here."""
        stacked = dict(zip(self.names, self.weights, strict=True)) | self.extras
        for index, model in enumerate(models):
            own = {name.removeprefix("model."): all_[index] for name, all_ in stacked.items()}
            model.load_state_dict({name: own[name].detach() for name in model.state_dict()})


class _Classifier(nn.Module):
    """What is called of a model."""

    def __init__(self, model: Backbone) -> None:
        super().__init__()
        self.model = model

    def forward(self, cut: Tensor) -> Tensor:
        return self.model.classify(cut)


class _DropoutApart(nn.Module):
    """One place's dropout of every model, each drawing as it does alone."""

    def __init__(self, own: Sequence[nn.Module], noises: Sequence[Noise]) -> None:
        super().__init__()
        self.own, self.noises = nn.ModuleList(own), noises

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        if not self.training:
            return x
        result: Tensor = _Apart.apply(x, self.factors)
        return result

    def factors(self, x: Float[Tensor, "s b n d"]) -> Float[Tensor, "s b n d"]:
        """What every model's branch is multiplied by."""
        ones = torch.ones_like(x)
        if not self.noises:  # on one stream, one module's draws for all are as good
            result: Tensor = self.own[0](ones)
            return result
        drawn = []
        for own, noise, branch in zip(self.own, self.noises, ones, strict=True):
            with noise():
                drawn.append(own(branch))
        return torch.stack(drawn)


class _Apart(torch.autograd.Function):
    """Times factors, which under vmap may differ between its slices."""

    @staticmethod
    def forward(x: Tensor, factors: Callable[[Tensor], Tensor]) -> Tensor:
        raise AssertionError("it stands for what happens under vmap, which has a rule of its own")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept: the rule below is plain operations."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None], x: Tensor, factors: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, int]:
        """All slices at once."""
        x = x.movedim(in_dims[0], 0)
        return x * factors(x.detach()), 0
