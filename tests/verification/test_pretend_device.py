"""The device in software: what a GPU would refuse is refused, everything else has the CPU's bits."""

from __future__ import annotations

import pytest
import torch

from verification.devices.pretend import ELSEWHERE, Elsewhere, place, pretending
from verification.judges.bits import first_difference


@pytest.fixture(autouse=True)
def there():
    """Every test runs with the device in place."""
    with pretending():
        yield


def numbers(count: int = 6) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) * 0.7 - 1.5


class TestResults:
    """Where results are, and what they hold."""

    def test_results_of_the_device_are_on_it_and_come_back_by_copying(self):
        """A sum, a product and a comparison stay there; .cpu() gives a plain tensor with the CPU's bits."""
        x = numbers()
        for compute in (torch.exp, torch.sum, lambda t: t * t + 1, lambda t: t > 0, lambda t: t.reshape(2, 3) @ t[:3]):
            result = compute(place(x))
            assert result.device == ELSEWHERE
            back = result.cpu()
            assert not isinstance(back, Elsewhere)
            assert first_difference(back, compute(x)) is None

    def test_numbers_are_read_across(self):
        """item, bool, tolist and nonzero wait for the device, as they do on a GPU."""
        x = place(numbers())
        assert x.sum().item() == numbers().sum().item()
        assert bool((x > 0).any())
        assert x.tolist() == numbers().tolist()
        assert (x > 0).nonzero().flatten().tolist() == [3, 4, 5]

    def test_new_tensors_are_where_their_device_says(self):
        """Made by the device of another, by its likeness, from data, or by moving one there; else on the host."""
        x = place(numbers())
        for made in (
            torch.zeros(3, device=x.device),
            torch.arange(3, device=x.device),
            torch.ones_like(x),
            torch.tensor([1.0, 2.0], device=x.device),
            torch.as_tensor([1.0, 2.0], device=x.device),
            numbers().to(x.device),
            numbers().to(x),
        ):
            assert isinstance(made, Elsewhere)
            assert isinstance(made.held, torch.Tensor)
            assert not made.held.is_meta
        assert torch.tensor([1.0, 2.0], device=x.device).cpu().tolist() == [1.0, 2.0]
        assert torch.zeros(3).device.type == "cpu"

    def test_views_write_through(self):
        """Writing to a slice there changes the whole, and padding goes through slices too."""
        x = place(numbers(4))
        x[1:3] = 9.0
        x[-1] += 1
        expected = numbers(4)
        expected[1:3] = 9.0
        expected[-1] += 1
        assert first_difference(x.cpu(), expected) is None
        padded = torch.nn.utils.rnn.pad_sequence([place(numbers(2)), place(numbers(4))])
        assert first_difference(padded.cpu(), torch.nn.utils.rnn.pad_sequence([numbers(2), numbers(4)])) is None

    def test_gradients_are_there_with_the_cpus_bits(self):
        """Autograd gives the gradient of a leaf on the device."""

        def loss(leaf: torch.Tensor) -> torch.Tensor:
            return (torch.exp(leaf) * torch.clamp(leaf, min=-0.5)).sum()

        leaf, plain = place(numbers()).requires_grad_(), numbers().requires_grad_()
        (got,), (expected,) = torch.autograd.grad(loss(leaf), leaf), torch.autograd.grad(loss(plain), plain)
        assert got.device == ELSEWHERE
        assert first_difference(got.cpu(), expected) is None

    def test_memory_is_told_apart(self):
        """A view shares its storage with the whole, a copy does not: aliases are seen as on the CPU."""
        x = place(numbers())
        assert x[2:].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert x[2:].data_ptr() == x.data_ptr() + 8
        assert x.clone().data_ptr() != x.data_ptr()


class TestRefusals:
    """What a GPU refuses."""

    @pytest.mark.parametrize(
        "mix",
        [
            lambda there, host: there + host,
            lambda there, host: host * there,
            lambda there, host: torch.where(host > 0, there, there),
            lambda there, host: torch.cat([there, host]),
            lambda there, host: torch.stack([there[0], host[0]]),
            lambda there, host: there.gather(0, host.long().clamp(0, 2)),
            lambda there, host: host[:, None] @ there[None, :],
            lambda there, host: host.add_(there),
            lambda there, host: torch.zeros(()).add_(there.sum()),
        ],
    )
    def test_two_devices_do_not_mix(self, mix):
        """Arithmetic, selection, joining, indices of gather, products and sums in place name both sides."""
        with pytest.raises(RuntimeError, match=r"mixes devices: it was given tensors of the device and, on the host"):
            mix(place(numbers()), numbers())

    def test_what_a_gpu_allows_is_allowed(self):
        """A host number beside a tensor, a copy in either direction, and host indices."""
        x, expected = place(numbers()), numbers()
        half = torch.tensor(0.5)
        assert first_difference((x * half + half).cpu(), expected * half + half) is None
        assert first_difference(torch.where(x > 0, x, half).cpu(), torch.where(expected > 0, expected, half)) is None
        assert first_difference(x[torch.tensor([4, 0])].cpu(), expected[torch.tensor([4, 0])]) is None
        target = torch.zeros(6)
        target.copy_(x)
        assert first_difference(target, expected) is None
        x.copy_(torch.ones(6))
        assert x.tolist() == [1.0] * 6

    def test_a_tensor_there_is_no_array(self):
        """numpy reads host memory only."""
        with pytest.raises((TypeError, RuntimeError)):
            place(numbers()).numpy()
