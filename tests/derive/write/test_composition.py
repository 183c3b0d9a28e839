"""What a branch alone reads is called by its role, and what is read once stands where it is read."""

from tests.derive.write.test_value_names import backward

LOSS = "return F.normalize(x, dim=-1) @ F.normalize(w, dim=-1).t() * s"


def test_branches_have_names_of_their_own() -> None:
    lines = backward("x[N, D], w[C, D], s=2.0", LOSS)
    assert lines.count("clamped = torch.clamp_min(norm, 1e-12)") == 2
    assert "norm = torch.linalg.vector_norm(w, dim=-1, keepdim=True)" in lines
    assert "masked = torch.where(norm >= 1e-12, w / clamped, 0)" in lines


def test_what_stands_beside_another_of_its_role_keeps_its_name() -> None:
    lines = backward(
        "a[N, D], b[N, D]", "(a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))"
    )
    names = {line.split(" = ")[0] for line in lines}
    assert {"a_norm", "b_norm"} <= names
    assert "norm" not in names


def test_what_is_read_once_stands_where_it_is_read() -> None:
    lines = backward(
        "image_features[N, D], text_features[N, D]",
        "(F.normalize(image_features, dim=-1) * text_features).sum(-1)",
    )
    assert "grad_image_features = scaled_grad / clamped" in lines
    assert not [line for line in lines if "remaining_grad" in line]


def test_what_is_read_twice_or_changes_in_place_stays() -> None:
    lines = backward(
        "x[N, D], y[N, D], k=2.0",
        "u = x * y\nu = u.mul_(k)\nreturn torch.exp(u) * torch.tanh(u)",
    )
    assert lines[:3] == ["u = x * y", "u = u.mul_(ctx.k)", "tanh = torch.tanh(u)"]
