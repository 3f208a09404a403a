// The minimum of an endpoint's workers at a time: `workersMin`, raised by the windows of `workersSchedule`. Pure functions; all
// times are Unix ms.
import { CronError, compileCron } from '../../base/cron.ts';
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';
import type { WorkersWindow } from '../../wire/resources/field.ts';

type Limits = Pick<EndpointDeployment, 'workersMax' | 'workersMin' | 'workersSchedule'>;

export interface Minimum {
  workersMin: number;
  /** A window raises it. */
  isRaised: boolean;
  /** When a window begins or ends next; Infinity without one. */
  nextAt: number;
}

/** Changes of the minimum that a record shows. */
const SHOWN_CHANGES = 5;
/** Beginnings and ends of windows that are looked at for them: many change nothing. */
const MAX_STEPS = 200;

export function findMinimum(
  { workersMax, workersMin, workersSchedule }: Limits,
  now: number,
): Minimum {
  const windows = workersSchedule.map((window) => readWindow(window, now));
  const raised = Math.max(0, ...windows.map((window) => window.workersMin));
  return {
    workersMin: Math.min(workersMax, Math.max(workersMin, raised)),
    isRaised: raised > workersMin,
    nextAt: Math.min(...windows.map(({ nextAt }) => nextAt)),
  };
}

export function listMinimumChanges(
  limits: Limits,
  now: number,
): { at: number; workersMin: number }[] {
  const changes: { at: number; workersMin: number }[] = [];
  let last = findMinimum(limits, now);
  for (let steps = 0; steps < MAX_STEPS && changes.length < SHOWN_CHANGES; steps++) {
    const at = last.nextAt;
    if (at === Number.POSITIVE_INFINITY) break;
    const next = findMinimum(limits, at);
    if (next.workersMin !== last.workersMin) changes.push({ at, workersMin: next.workersMin });
    last = next;
  }
  return changes;
}

/** Of the windows of one expression, the last one to begin ends last. */
function readWindow({ cron, forMs, timeZone, workersMin }: WorkersWindow, now: number) {
  const times = compileCron(cron, timeZone);
  const begun = times.last(now + 1, 2).filter((time) => time <= now);
  const end = (begun.at(-1) ?? Number.NEGATIVE_INFINITY) + forMs;
  const next = times.next(now) ?? Number.POSITIVE_INFINITY;
  const isOpen = now < end;
  return { workersMin: isOpen ? workersMin : 0, nextAt: isOpen ? Math.min(end, next) : next };
}

/** With paths; empty if all are valid. */
export function findWindowFaults({ workersMax, workersSchedule }: Limits): string[] {
  return workersSchedule.flatMap(({ cron, timeZone, workersMin }, index) => {
    const path = `workersSchedule[${index}]`;
    if (workersMin > workersMax) return [`${path}.workersMin: must not be greater than workersMax`];
    try {
      compileCron(cron, timeZone);
      return [];
    } catch (error) {
      if (!(error instanceof CronError)) throw error;
      return [`${path}.${error.part}: ${error.message}`];
    }
  });
}
