"""Documents for the tests of reports: one that holds, one with everything in it, and text that means harm."""

from __future__ import annotations

from verification.report.document import PROBLEM, Document, Finding, Histogram, Lines, Sheet, Tried

# Markup, both quotes, marks of direction, an escape sequence, a lone surrogate, NUL, and what markdown would take.
HOSTILE = "<script>alert(1)</script>&amp;\"' \u202eevil\u202c \x1b[31m\ud800\x00 | `x` _y_ **z** [a](b) {{ 1 }} ]]>"

HOLDING = Document(
    title="relax-verify check",
    verdict="VERDICT equivalent",
    exit_code=0,
    facts=(("torch", "2.13.0"), ("elapsed", "1.5 s")),
    sheets=(
        Sheet(
            "stages",
            ("stage", "algorithm", "cases", "comparisons", "differences", "largest ulps in bits"),
            (("loss.reduce", "grpo", "2", "14", "0", "0"), ("total", "", "2", "14", "0", "0")),
        ),
    ),
    histograms=(Histogram("By judge", "bits against frozen", "ulps", ("0", "1", "2 to 3"), (14, 0, 0)),),
    tried=(Tried("loss.reduce/grpo/one", "loss.reduce"), Tried("loss.reduce/grpo/two", "loss.reduce")),
)


def differing(text: str = "plain", cases: int = 3) -> Document:
    """Differences on ``cases`` cases, a problem, and a case that is not there; ``text`` stands in every place."""
    findings = [
        Finding(
            case=f"kl.estimate/grpo/{number}-{text}",
            stage="kl.estimate",
            algorithm="grpo",
            what=f"{judge}: {text}",
            detail=f"1 of 4 differ, first at [2]: {text}",
            ulps=3.0 * (number + 1),
            evidence=(
                (
                    Lines("input", (f"values: {text}",)),
                    Sheet("values", ("at", "got"), (("[2]", text),), (0, 1), note=text),
                )
                if judge == "bits"
                else ()
            ),
            command=f"relax-verify check --case '{number}-{text}'",
        )
        for number in range(cases)
        for judge in ("bits", "rounding")
    ]
    problem = Finding("loss.reduce/gspo/broken", "loss.reduce", "gspo", f"golden {text}", text, kind=PROBLEM)
    tried = [Tried(f"kl.estimate/grpo/{number}-{text}", "kl.estimate") for number in range(cases)]
    return Document(
        title=f"relax-verify check {text}",
        verdict=f"VERDICT different ({2 * cases})",
        exit_code=1,
        facts=(("torch", "2.13.0"), (f"fact {text}", text)),
        sheets=(
            Sheet(
                f"stages {text}",
                ("stage", "algorithm", "cases", "differences"),
                (("kl.estimate", text, str(cases), str(2 * cases)), ("loss.reduce", "gspo", "1", "0")),
            ),
            Sheet("provenance", ("", ""), (("baseline", text),), note=text),
        ),
        findings=(*findings, problem),
        histograms=(
            Histogram("By judge", f"bits {text}", "ulps", ("0", "1", "2 to 3", "4 to 7"), (1000, 0, 7, 0)),
            Histogram("By judge", "invariance", "ulps", ("0", "1", "2 to 3", "4 to 7"), (20, 0, 0, 0)),
        ),
        tried=(*tried, Tried("loss.reduce/gspo/absent", "loss.reduce", f"not there in {text}")),
    )
