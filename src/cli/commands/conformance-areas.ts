// Chooses the areas of checks that `--only` names.
import { type ConformanceCheck, chooseChecks } from '../../conformance/checks.ts';
import { UsageError } from '../options.ts';

/** @throws UsageError */
export function chooseAreas<Stage>(
  checks: readonly ConformanceCheck<Stage>[],
  only: readonly string[],
): readonly ConformanceCheck<Stage>[] {
  const areas = new Set(checks.map(({ area }) => area));
  const unknown = only.find((area) => !areas.has(area));
  if (unknown === undefined) return chooseChecks(checks, only);
  throw new UsageError(`--only ${unknown}: unknown area; give one of ${[...areas].join(', ')}`);
}
