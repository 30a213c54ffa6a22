"""JUnit XML, for the test reports of CI systems: a suite a stage, a test case a case."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain
from xml.etree import ElementTree

from verification.report.document import DIFFERENCE, PROBLEM, Document, Finding, Tried
from verification.report.visible import visible

NO_VERDICT = "verdict"  # the suite that says that there is none, so that silence does not read as agreement
Result = tuple[str, str, str]  # the element that tells it (none for a pass), its message, its text


def junit_xml(document: Document) -> str:
    """The document as XML text: a failure for what differs, an error for a problem, skipped for what is not there."""
    root = ElementTree.Element("testsuites", name=visible(document.title))
    totals: dict[str, int] = defaultdict(int)
    for stage, results in sorted(_by_stage(document).items()):
        suite = ElementTree.SubElement(root, "testsuite", name=visible(stage))
        kinds = Counter(kind for kind, _, _ in results.values())
        for name, count in (
            ("tests", len(results)),
            ("failures", kinds["failure"]),
            ("errors", kinds["error"]),
            ("skipped", kinds["skipped"]),
        ):
            suite.set(name, str(count))
            totals[name] += count
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in (("verdict", document.verdict), *document.facts):
            ElementTree.SubElement(properties, "property", name=visible(name), value=visible(value))
        for case, (kind, message, text) in results.items():
            test = ElementTree.SubElement(suite, "testcase", classname=visible(stage), name=visible(case))
            if kind:
                ElementTree.SubElement(test, kind, message=visible(message)).text = visible(text)
    for name, count in totals.items():
        root.set(name, str(count))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _by_stage(document: Document) -> dict[str, dict[str, Result]]:
    """What became of each case, by stage; cases that only a finding names come last."""
    found: dict[str, list[Finding]] = defaultdict(list)
    for finding in document.findings:
        found[finding.case].append(finding)
    named = (Tried(one.case, one.stage) for one in document.findings)
    stages: dict[str, dict[str, Result]] = defaultdict(dict)
    by_case: dict[str, Tried] = {}
    for one in chain(document.tried, named):
        by_case.setdefault(one.case, one)
    for one in by_case.values():
        stages[one.stage or "-"][one.case] = _result(found.get(one.case, ()), one.skipped)
    if document.exit_code == 2 and not document.problems:
        stages[NO_VERDICT][document.title] = ("error", document.verdict, "")
    return stages


def _result(found: Sequence[Finding], skipped: str) -> Result:
    if not found:
        return ("skipped", skipped, "") if skipped else ("", "", "")
    kinds = [one.kind for one in found]
    kind = DIFFERENCE if DIFFERENCE in kinds else PROBLEM
    first = found[kinds.index(kind)]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    lines = [f"{one.kind}: {one.what}\n{one.detail}" for one in found] + [one.command for one in found[:1]]
    return ("failure" if kind == DIFFERENCE else "error"), f"{first.what}{more}", "\n".join(lines)
