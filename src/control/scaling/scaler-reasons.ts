// What is said of a decision about workers: one sentence with the numbers that led to it.
import type { ScalerCause, ScalerInput } from '../../wire/resources/decision.ts';

export interface DecisionFacts {
  input: ScalerInput;
  /** Workers that are there and do not drain. */
  alive: number;
  want: number;
  start: number;
  drains: number;
}

export function describeCause(cause: ScalerCause, facts: DecisionFacts): string {
  const { alive, drains, input, start, want } = facts;
  const { crashes, workersMax, workersMin } = input;
  const more = `${count(start, 'more worker')}, ${alive + start} of at most ${workersMax}`;
  const fewer = `${count(drains, 'worker')} less, ${alive - drains} of at most ${workersMax}`;
  switch (cause) {
    case 'first':
      return `${describeLoad(input)} and there is no worker: ${more}`;
    case 'delay':
      return `${describeWait(input)}: ${more}`;
    case 'count':
      return `${describeLoad(input)}, ${describeShare(input)}: ${more}`;
    case 'minimum':
      return `${count(workersMin, 'worker')} at least: ${more}`;
    case 'rolling':
      return describeRolling(facts);
    case 'idle':
      return `nothing to do for ${seconds(input.idleTimeoutMs)} s: ${fewer}`;
    case 'surplus':
      return `${count(input.load.peak, 'request')} at most within ${seconds(input.idleTimeoutMs)} s, ${describeShare(input)}: ${fewer}`;
    case 'above_maximum':
      return `more than ${workersMax}: ${fewer}`;
    case 'at_maximum':
      return `${describeLoad(input)}, and there are as many workers as there may be: ${describePlaces(input)}`;
    case 'no_gpu':
      return `${count(want - alive, 'more worker')} wanted, and no GPU of its types is free`;
    case 'no_room':
      return `${count(want - alive, 'more worker')} wanted, but the machine is full: ${input.room?.shortage ?? 'it is full'}`;
    case 'crashed':
      return `${describeStreak(crashes.streak)} ended too early: ${crashes.reason ?? 'nobody knows why'}; ${describePatience(input)}`;
    case 'enough':
      return `${describeLoad(input)}: ${describeAlive(alive)}`;
  }
}

function describeLoad({ load: { running, waiting } }: ScalerInput): string {
  if (waiting === 0 && running === 0) return 'nothing to do';
  const waits =
    waiting === 0 ? [] : [`${count(waiting, 'job')} ${waiting === 1 ? 'waits' : 'wait'}`];
  const runs = running === 0 ? [] : [`${running} ${running === 1 ? 'is' : 'are'} under way`];
  return [...waits, ...runs].join(', ');
}

function describeWait({ load, now, scaler }: ScalerInput): string {
  const waited = seconds(now - (load.oldestQueuedAt ?? now));
  const limit = scaler.type === 'QUEUE_DELAY' ? `, over ${scaler.seconds} s` : '';
  return `${count(load.waiting, 'job')} ${load.waiting === 1 ? 'waits' : 'wait'}, the oldest for ${waited} s${limit}`;
}

function describeShare({ scaler }: ScalerInput): string {
  return scaler.type === 'REQUEST_COUNT' ? `${scaler.perWorker} for each worker` : 'by the wait';
}

function describeRolling({ drains, input, start }: DecisionFacts): string {
  const old = input.workers.filter(({ isCurrent }) => !isCurrent).length;
  const what = `${count(old, 'worker')} of before the change`;
  if (start > 0) return `${what}: ${count(start, 'new one')} to take their place`;
  return drains > 0
    ? `${what}: ${drains} of them not needed any more`
    : `${what}: waiting until new ones are ready`;
}

function describePlaces({ workers, workersMax }: ScalerInput): string {
  const draining = workers.filter(({ state }) => state === 'draining').length;
  return draining === 0
    ? `${workersMax}`
    : `${workersMax}, with ${draining} that ${draining === 1 ? 'is' : 'are'} leaving`;
}

function describeStreak(streak: number): string {
  return streak === 1 ? 'a worker' : `${streak} workers in a row`;
}

function describePatience({ crashes, now }: ScalerInput): string {
  return now < crashes.notBefore
    ? `the next one in ${seconds(crashes.notBefore - now)} s`
    : 'the next one is on trial';
}

function describeAlive(alive: number): string {
  if (alive === 0) return 'no worker is needed';
  return alive === 1 ? '1 worker is enough' : `${alive} workers are enough`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/** With one decimal where that says more. */
function seconds(ms: number): string {
  return String(Math.round(ms / 100) / 10);
}
