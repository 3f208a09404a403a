// The minimum of an endpoint's workers at a time: `workersMin`, raised by the windows of `workersSchedule`. Pure functions; all
// times are Unix ms.
import { CronError, type CronTimes, compileCron } from '../../base/cron.ts';
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
/** Beginnings and ends of windows that are looked at for them: many change nothing, and each takes 0.2 ms. */
const MAX_LOOKS = 64;

export function findMinimum(limits: Limits, now: number): Minimum {
  return composeMinimum(
    limits,
    limits.workersSchedule.map((window) => readWindow(window, now)),
  );
}

export function listMinimumChanges(
  limits: Limits,
  now: number,
): { at: number; workersMin: number }[] {
  const changes: { at: number; workersMin: number }[] = [];
  let windows = limits.workersSchedule.map((window) => readWindow(window, now));
  let last = composeMinimum(limits, windows);
  for (let looks = 0; looks < MAX_LOOKS && changes.length < SHOWN_CHANGES; ) {
    const at = last.nextAt;
    if (at === Number.POSITIVE_INFINITY) break;
    windows = windows.map((each) => {
      if (each.nextAt > at) return each;
      looks++;
      return readWindow(each.window, at);
    });
    const next = composeMinimum(limits, windows);
    if (next.workersMin !== last.workersMin) changes.push({ at, workersMin: next.workersMin });
    last = next;
  }
  return changes;
}

interface WindowState {
  window: WorkersWindow;
  /** 0: it is not open. */
  workersMin: number;
  nextAt: number;
}

function composeMinimum(
  { workersMax, workersMin }: Limits,
  windows: readonly WindowState[],
): Minimum {
  const raised = Math.max(0, ...windows.map((window) => window.workersMin));
  return {
    workersMin: Math.min(workersMax, Math.max(workersMin, raised)),
    isRaised: raised > workersMin,
    nextAt: Math.min(...windows.map(({ nextAt }) => nextAt)),
  };
}

/** Of the windows of one expression, the last one to begin ends last. */
function readWindow(window: WorkersWindow, now: number): WindowState {
  const { forMs } = window;
  const { begin, next } = findInterval(compileCron(window.cron, window.timeZone), now);
  const end = begin + forMs;
  const isOpen = now < end;
  return {
    window,
    workersMin: isOpen ? window.workersMin : 0,
    nextAt: isOpen ? Math.min(end, next) : next,
  };
}

/** From one time of an expression to the next. */
interface Interval {
  begin: number;
  next: number;
}

/** Each pass of the fleet and each record asks for the same ones. */
const intervals = new WeakMap<CronTimes, Interval[]>();
const MAX_INTERVALS = 8;

function findInterval(times: CronTimes, now: number): Interval {
  const known = intervals.get(times) ?? [];
  const hit = known.find(({ begin, next }) => begin <= now && now < next);
  if (hit) return hit;
  const begun = times.last(now + 1, 2).filter((time) => time <= now);
  const found = {
    begin: begun.at(-1) ?? Number.NEGATIVE_INFINITY,
    next: times.next(now) ?? Number.POSITIVE_INFINITY,
  };
  intervals.set(times, [found, ...known.slice(0, MAX_INTERVALS - 1)]);
  return found;
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
