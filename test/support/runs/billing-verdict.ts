// Compares a bill with what engines have recorded of pods, and with what callers know of volumes.
import type { BillingRecord } from '../../../src/wire/resources/billing.ts';
import type { RecordedRun } from '../containers/run-records.ts';
import type { Lives, VolumeLife } from './billing-lives.ts';
import type { Outage } from './node-outages.ts';

export interface Happened extends Pick<Lives, 'removed' | 'volumes'> {
  runs: readonly RecordedRun[];
  /** Runs of which the test has no record. */
  missed: readonly string[];
  outages: readonly Outage[];
  /** USD for 1 GB and month. */
  volumePrice: number;
}

export interface ReadBill {
  pods: readonly BillingRecord[];
  volumes: readonly BillingRecord[];
  /** USD. */
  total: string;
  /** What the budget of the user has found, USD. */
  spent: string;
}

export interface Verdict {
  flaws: string[];
  pods: number;
  /** Those that were deleted while their node did not answer: billed as long as the platform saw them run. */
  unseen: number;
  runs: number;
  volumes: number;
  outages: Record<string, number>;
}

/** A node is still taken for gone for so long after it answers again, and a deletion waits for so long, ms. */
const RETURN_MS = 15_000;
/** From the removal of its record to the end of the last process of a container, at most. */
const KILL_MS = 10_000;
/** The end of a run is on the bill by then, also on a loaded machine, ms. */
const SEEN_MS = 10_000;
/** The clock of a platform is ahead by so much after its start, so that no time comes twice. */
const CLOCK_MS = 1_000;
const MONTH_MS = 730 * 3_600_000;
const GB = 1_000;
const MICRO_USD = 0.000_001;

export function compareBill(happened: Happened, bill: ReadBill): Verdict {
  const { missed, outages, runs, volumes } = happened;
  const ofPods = comparePods(happened, bill);
  const all = [...bill.pods, ...bill.volumes];
  const sum = all.reduce((before, { cost }) => before + Number(cost), 0);
  // Each cost is rounded.
  const isSum = Math.abs(sum - Number(bill.total)) <= all.length * MICRO_USD;
  const flaws = [
    ...missed.map((name) => `${name}: the test has no record of this run`),
    ...ofPods.flaws,
    ...compareVolumes(happened, bill),
    ...(isSum ? [] : [`all together: billed ${bill.total} USD, sum ${sum}`]),
    ...(bill.spent === bill.total ? [] : [`budget: spent ${bill.spent} of ${bill.total} USD`]),
  ];
  const names = outages.map(({ hasLed, kind }) => `${hasLed ? 'leader' : 'other'} ${kind}`);
  const counts = Object.entries(Object.groupBy(names, (name) => name));
  return {
    ...{ flaws, pods: ofPods.pods, unseen: ofPods.unseen, runs: runs.length },
    ...{ volumes: volumes.length },
    outages: Object.fromEntries(counts.map(([name, each]) => [name, each?.length ?? 0])),
  };
}

function comparePods(happened: Happened, { pods: billed }: ReadBill) {
  const byPod = new Map<string, RecordedRun[]>();
  for (const run of happened.runs) {
    byPod.set(run.podId, [...(byPod.get(run.podId) ?? []), run]);
  }
  const flaws = billed
    .filter(({ id }) => !byPod.has(id ?? ''))
    .map(({ id, seconds }) => `${id}: billed ${seconds} s, never ran`);
  let unseen = 0;
  for (const [id, runs] of byPod) {
    const record = billed.find((each) => each.id === id);
    const ms = Math.round((record?.seconds ?? 0) * 1_000);
    const unknown = runs.filter((run) => isEndUnseen(run, happened));
    const least = sumOf(runs.filter((run) => !unknown.includes(run)));
    const most = least + sumOf(unknown, KILL_MS);
    if (unknown.length > 0) unseen += 1;
    if (ms >= least && ms <= most) continue;
    const told = runs.map(
      ({ endedAt, goneAt, startedAt }) => `${startedAt}..${endedAt ?? `(${goneAt})`}`,
    );
    flaws.push(
      `${id}: billed ${ms} ms, ran ${least} to ${most} ms: ${told.join(' ')}, ` +
        `removed at ${happened.removed.get(id)}, its node was gone: ${listOutages(happened, runs)}`,
    );
  }
  return { flaws, unseen, pods: byPod.size };
}

function listOutages({ outages }: Happened, runs: readonly RecordedRun[]): string {
  const own = outages.filter(({ folder }) => runs.some((run) => run.folder === folder));
  return own.map(({ from, kind, to }) => `${kind} ${from}..${to}`).join(', ');
}

/** NaN if one of them has no end, which no bill equals. */
function sumOf(runs: readonly RecordedRun[], laterMs?: number): number {
  const lengths = runs.map(({ endedAt, goneAt, startedAt }) => {
    const latest = laterMs === undefined ? undefined : (goneAt ?? Number.NaN) + laterMs;
    return (endedAt ?? latest ?? Number.NaN) - startedAt;
  });
  return lengths.reduce((sum, ms) => sum + ms, 0);
}

/** The run was found dead, or the pod was deleted while its node did not answer: nobody may have seen the end. */
function isEndUnseen(run: RecordedRun, { outages, removed }: Happened): boolean {
  if (!run.isEndSeen) return true;
  const removedAt = removed.get(run.podId) ?? Number.POSITIVE_INFINITY;
  const { goneAt = Number.POSITIVE_INFINITY } = run;
  const { endedAt = goneAt } = run;
  const isDown = ({ folder, from, to }: Outage) =>
    folder === run.folder && from - SEEN_MS <= endedAt && to + RETURN_MS >= removedAt;
  return outages.some(isDown);
}

function compareVolumes({ volumePrice, volumes }: Happened, bill: ReadBill): string[] {
  const known = new Set(volumes.map(({ id }) => id));
  const flaws = bill.volumes
    .filter(({ id }) => !known.has(id ?? ''))
    .map(({ id, seconds }) => `${id}: billed ${seconds} s, unknown`);
  for (const volume of volumes) {
    const { createdAt, deleted, id, sizes } = volume;
    const record = bill.volumes.find((each) => each.id === id);
    const ms = Math.round((record?.seconds ?? 0) * 1_000);
    const [least, most] = [
      deleted.from - createdAt - CLOCK_MS,
      deleted.seenAt - createdAt + CLOCK_MS,
    ];
    if (ms < least || ms > most) flaws.push(`${id}: billed ${ms} ms of ${least} to ${most}`);
    const cost = Number(record?.cost ?? 0);
    const price = (volumePrice * GB) / MONTH_MS;
    const bound = (grownAt: 'from' | 'seenAt') => costOf(volume, createdAt + ms, grownAt) * price;
    const slack = CLOCK_MS * sizes.length * price + MICRO_USD;
    const [low, high] = [bound('seenAt') - slack, bound('from') + slack];
    if (cost < low || cost > high) flaws.push(`${id}: billed ${cost} USD of ${low} to ${high}`);
  }
  return flaws;
}

/** Of a volume of 1,000 GB that has grown by as much at each of these times: sizes times ms. */
function costOf({ createdAt, sizes }: VolumeLife, end: number, grownAt: 'from' | 'seenAt') {
  const grown = sizes.map((each) => end - Math.min(end, each[grownAt]));
  return grown.reduce((sum, ms) => sum + ms, end - createdAt);
}
