// Explains a scaling decision in one sentence with the numbers that led to it.
import type { ScalerCause, ScalerInput } from '../../wire/resources/scaling.ts';

interface DecisionFacts {
  input: ScalerInput;
  /** Workers that are not draining. */
  alive: number;
  want: number;
  start: number;
  drains: number;
}

export function describeCause(cause: ScalerCause, facts: DecisionFacts): string {
  const { alive, drains, input, start, want } = facts;
  const { crashes, workersMax, workersMin } = input;
  const idleSeconds = seconds(input.idleTimeoutMs);
  const more = `starting ${count(start, 'worker')}, ${alive + start} of at most ${workersMax}`;
  const fewer = `draining ${count(drains, 'worker')}, ${alive - drains} of at most ${workersMax}`;
  switch (cause) {
    case 'first':
      return `${describeLoad(input)}, no worker: ${more}`;
    case 'delay':
      return `${describeWait(input)}: ${more}`;
    case 'count':
      return `${describeLoad(input)}, ${describeShare(input)}: ${more}`;
    case 'next_gpu':
      return `jobs need a later GPU type: ${more}`;
    case 'minimum':
      return `workersMin is ${workersMin}: ${more}`;
    case 'rolling':
      return describeRolling(facts);
    case 'idle':
      return `idle for ${idleSeconds} s: ${fewer}`;
    case 'surplus':
      return `at most ${count(input.load.peak, 'request')} at a time for ${idleSeconds} s, ${describeShare(input)}: ${fewer}`;
    case 'above_maximum':
      return `workersMax is ${workersMax}: ${fewer}`;
    case 'at_maximum':
      if (workersMax === 0) {
        return `${describeLoad(input)}; the endpoint is switched off (workersMax is 0)`;
      }
      return `${describeLoad(input)}, but the endpoint has its maximum of workers: ${describePlaces(input)}`;
    case 'no_gpu':
      return `${count(want - alive, 'more worker')} needed, but no GPU of the endpoint's types is free`;
    case 'no_capacity':
      return `${count(want - alive, 'more worker')} needed, but the machine is full: ${input.headroom?.shortage ?? 'resource unknown'}`;
    case 'budget':
      return `${count(want - alive, 'more worker')} needed, but ${input.headroom?.shortage ?? 'a budget is used up'}`;
    case 'crashed':
      return `${describeStreak(crashes.streak)} failed: ${crashes.reason ?? 'reason unknown'}; ${describeRetry(input)}`;
    case 'enough':
      return `${describeLoad(input)}: ${describeAlive(alive)}`;
  }
}

function describeLoad({ load: { running, waiting } }: ScalerInput): string {
  if (waiting === 0 && running === 0) return 'no load';
  const waits = waiting === 0 ? [] : [`${count(waiting, 'job')} waiting`];
  const runs = running === 0 ? [] : [`${running} running`];
  return [...waits, ...runs].join(', ');
}

function describeWait({ load, now, scaler }: ScalerInput): string {
  const waited = seconds(now - (load.oldestQueuedAt ?? now));
  const limit = scaler.type === 'QUEUE_DELAY' ? `, over ${scaler.seconds} s` : '';
  return `${count(load.waiting, 'job')} waiting, the oldest for ${waited} s${limit}`;
}

function describeShare({ scaler }: ScalerInput): string {
  return scaler.type === 'REQUEST_COUNT' ? `${scaler.perWorker} per worker` : 'scaled by wait';
}

function describeRolling({ drains, input, start }: DecisionFacts): string {
  const old = input.workers.filter(({ isCurrent }) => !isCurrent).length;
  const what = `${count(old, 'outdated worker')}`;
  if (start > 0) return `${what}: starting ${count(start, 'replacement')}`;
  return drains > 0
    ? `${what}: draining ${drains}`
    : `${what}: waiting until replacements are ready`;
}

function describePlaces({ workers, workersMax }: ScalerInput): string {
  const draining = workers.filter(({ state }) => state === 'draining').length;
  return draining === 0 ? `${workersMax}` : `${workersMax}, ${draining} of them draining`;
}

function describeStreak(streak: number): string {
  return streak === 1 ? 'a worker' : `${streak} workers in a row`;
}

function describeRetry({ crashes, now }: ScalerInput): string {
  return now < crashes.notBefore
    ? `next start in ${seconds(crashes.notBefore - now)} s`
    : 'one worker is on trial';
}

function describeAlive(alive: number): string {
  if (alive === 0) return 'no worker is needed';
  return alive === 1 ? '1 worker is enough' : `${alive} workers are enough`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/** Rounded to one decimal. */
function seconds(ms: number): string {
  return String(Math.round(ms / 100) / 10);
}
