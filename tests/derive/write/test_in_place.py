"""What a backward under balanced writes over, and which products it computes together with a sum."""

from tests.derive.building import spec_of, text_of


def balanced(inputs: str, forward: str) -> str:
    spec = spec_of(inputs, forward=forward, derive=True, save_policy="balanced")
    return text_of(spec).partition("def backward")[2]


def test_a_product_is_computed_with_the_sum_that_it_is_a_term_of() -> None:
    forward = """
rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
return x * rstd * weight
"""
    text = balanced("x[..., D], weight[D], eps: float", forward)
    assert "torch.addcmul(grad_normalized, inner, normalized, value=-1)" in text


def test_a_one_hot_is_taken_off_where_it_is_one() -> None:
    forward = "-torch.log_softmax(z, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1).mean()"
    text = balanced("z[N, C], y[N; index(C)]", forward)
    assert 'exp.scatter_(-1, y.unsqueeze(-1), -1, reduce="add")' in text
    assert "zeros" not in text
