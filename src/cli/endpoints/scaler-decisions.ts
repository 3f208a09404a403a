// Formats scaling decisions of an endpoint as tables and paragraphs.
import type { DecisionRecord } from '../../wire/scaling/decision.ts';
import { formatTable } from '../output.ts';

/** One row for each decision. */
export function describeDecisions(decisions: readonly DecisionRecord[], width: number): string {
  const titles = ['TIME', 'DESIRED', 'START', 'DRAIN', 'REASON'];
  const rows = decisions.map(({ at, drain, reason, start, want }) => [
    ...[at, String(want), String(start), String(drain.length), reason],
  ]);
  return formatTable(titles, rows, width);
}

/** One paragraph for each decision, with its inputs. */
export function explainDecisions(decisions: readonly DecisionRecord[]): string {
  return decisions.map(explain).join('\n\n');
}

function explain({ at, cause, drain, input, reason, started, want }: DecisionRecord): string {
  const { crashes, load, places, scaler, workers, workersMax, workersMin } = input;
  const oldest =
    load.oldestQueuedAt === null ? '' : `, the oldest for ${input.now - load.oldestQueuedAt} ms`;
  const facts: [label: string, fact: string | undefined][] = [
    ['load', `${load.waiting} waiting${oldest}; ${load.running} running; recent peak ${load.peak}`],
    ['later GPU', describeOutgrown(load.outgrown)],
    ['workers', describeWorkers(workers)],
    ['limits', `${workersMin} to ${workersMax}, ${describeScaler(scaler)}`],
    ['GPUs', places === null ? undefined : `free for ${places} workers`],
    ['crashes', crashes.streak > 0 ? `${crashes.streak} in a row: ${crashes.reason}` : undefined],
    ['started', started.map(({ gpu, pod }) => (gpu ? `${pod} on ${gpu}` : pod)).join(', ')],
    ['drained', drain.join(', ')],
  ];
  const lines = facts.flatMap(([label, fact]) => (fact ? [`  ${label.padEnd(10)}${fact}`] : []));
  return [`${at}  ${want} wanted (${cause}): ${reason}`, ...lines].join('\n');
}

function describeOutgrown(
  outgrown: DecisionRecord['input']['load']['outgrown'] = [],
): string | undefined {
  const jobs = outgrown.map(({ gpuType, waiting }) => `${waiting} ran out of memory on ${gpuType}`);
  return jobs.length === 0 ? undefined : jobs.join(', ');
}

function describeWorkers(workers: DecisionRecord['input']['workers']): string {
  const states = Map.groupBy(workers, ({ state }) => state);
  const counts = [...states].map(([state, those]) => `${those.length} ${state}`);
  const old = workers.filter(({ isCurrent }) => !isCurrent).length;
  return [...counts, ...(old > 0 ? [`${old} to be replaced`] : [])].join(', ') || 'none';
}

function describeScaler(scaler: DecisionRecord['input']['scaler']): string {
  return scaler.type === 'QUEUE_DELAY'
    ? `add one when a job waits for ${scaler.seconds} s`
    : `one per ${scaler.perWorker} jobs or requests`;
}
