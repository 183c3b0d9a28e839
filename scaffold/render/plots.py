"""Bar charts of the times of an op's variants.

`scaffold bench --plot` writes them. In: for each setting the seconds of a call by variant. Out: the text of an SVG file.
Invariant: the same times give the same bytes; the SVG loads nothing.
"""

from collections.abc import Mapping
from io import StringIO

# By variant: the time of the forward; then the median and quartiles of forward and backward together.
Times = Mapping[str, tuple[float, float, float, float]]


def lacks_matplotlib() -> bool:
    """Return whether matplotlib, an optional dependency, is missing."""
    try:
        import matplotlib  # type: ignore[import-not-found,unused-ignore] # noqa: F401
    except ImportError:
        return True
    return False


def bars(title: str, settings: Mapping[str, Times]) -> str:
    """Draw a bar chart with a panel for each setting; return it as SVG."""
    import matplotlib  # type: ignore[import-not-found,unused-ignore]
    from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]

    rows = sum(len(times) + 2 for times in settings.values())
    figure = Figure(figsize=(7, 1 + 0.3 * rows), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(len(settings), squeeze=False)
    for panel, (setting, times) in zip(panels.flat, settings.items(), strict=True):
        names = list(times)[::-1]  # the first variant on top
        for name in names:
            forward, both, low, high = (1e3 * seconds for seconds in times[name])
            spread = [[both - low], [high - both]]
            panel.barh(name, forward, color="C0")
            panel.barh(name, both - forward, left=forward, xerr=spread, color="C1")
        panel.set_title(setting, fontsize="medium")
        panel.set_xlabel("ms")
    bars_of_one = panels.flat[0].patches[:2]
    labels = ("forward", "backward")
    figure.legend(bars_of_one, labels, loc="outside lower center", ncols=2)
    text = StringIO()
    # Without these two, ids in the file would be random, and it would have a date.
    with matplotlib.rc_context({"svg.hashsalt": title}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
