// Decides which shards a node claims and which it offers to other nodes. Every node computes the plan of the whole
// cluster from the same rows, and carries out its own part.
import type { ClusterView, ShardView } from './cluster-rows.ts';

export interface ShardPlan {
  claim: number[];
  offer: { shard: number; to: string }[];
}

interface Move {
  shard: number;
  from: string;
  to: string;
}

/** The leader owns this shard. It moves only if its owner leaves or dies. */
const LEADER_SHARD = 0;

export function planShards(view: ClusterView, me: string): ShardPlan {
  const members = view.nodes
    .filter(({ isLeaving, isLive }) => isLive && !isLeaving)
    .map(({ id }) => id)
    .toSorted();
  const donors = new Set(view.nodes.filter(({ isLive }) => isLive).map(({ id }) => id));
  // A node that others count as dead hands over the shards that it still has.
  donors.add(me);
  const shards = view.shards.toSorted((a, b) => a.id - b.id);
  const claims = planClaims(shards, members, donors);
  const moves = planMoves(shards, members, { claims, donors });
  return {
    claim: [...claims].filter(([, owner]) => owner === me).map(([shard]) => shard),
    offer: moves.filter(({ from }) => from === me).map(({ shard, to }) => ({ shard, to })),
  };
}

/** The claimant of each shard that no live node owns. Empty without members. */
function planClaims(
  shards: readonly ShardView[],
  members: readonly string[],
  donors: ReadonlySet<string>,
): Map<number, string> {
  const claims = new Map<number, string>();
  const free = shards.filter(({ owner }) => owner === null || !donors.has(owner));
  const orphans: ShardView[] = [];
  for (const shard of free) {
    const { id, offeredTo, owner } = shard;
    const isPromised = owner === null && offeredTo !== null && members.includes(offeredTo);
    if (isPromised) claims.set(id, offeredTo);
    else orphans.push(shard);
  }
  const counts = countShards(shards, members, claims);
  for (const { failedOn, id } of orphans) {
    const others = members.filter((member) => member !== failedOn);
    const claimant = findSmallest(others.length > 0 ? others : members, counts);
    if (claimant === undefined) break;
    claims.set(id, claimant);
    add(counts, claimant, 1);
  }
  return claims;
}

/** As few moves as the fair shares need. */
function planMoves(
  shards: readonly ShardView[],
  members: readonly string[],
  { claims, donors }: { claims: ReadonlyMap<number, string>; donors: ReadonlySet<string> },
): Move[] {
  const counts = countShards(shards, members, claims);
  const shares = findShares(shards.length, members, counts);
  const moves: Move[] = [];
  for (const from of [...donors].toSorted()) {
    let surplus = (counts.get(from) ?? Number.POSITIVE_INFINITY) - (shares.get(from) ?? 0);
    const isStaying = shares.has(from);
    for (const { failedOn, id, owner } of shards.toReversed()) {
      if (owner !== from || surplus <= 0 || (isStaying && id === LEADER_SHARD)) continue;
      const to = members.find(
        (member) => member !== failedOn && (counts.get(member) ?? 0) < (shares.get(member) ?? 0),
      );
      if (to === undefined) continue;
      moves.push({ shard: id, from, to });
      add(counts, to, 1);
      surplus--;
    }
  }
  return moves;
}

/** Each member gets the floor of the average. Those that have the most get what remains. */
function findShares(
  total: number,
  members: readonly string[],
  counts: ReadonlyMap<string, number>,
): Map<string, number> {
  const byCount = members.toSorted((a, b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0));
  const floor = Math.floor(total / members.length);
  const rest = total % members.length;
  return new Map(byCount.map((id, index) => [id, floor + (index < rest ? 1 : 0)]));
}

/** Shards that each member owns or will claim. */
function countShards(
  shards: readonly ShardView[],
  members: readonly string[],
  claims: ReadonlyMap<number, string>,
): Map<string, number> {
  const counts = new Map(members.map((id) => [id, 0]));
  for (const { id, owner } of shards) {
    const holder = claims.get(id) ?? owner;
    if (holder !== null && counts.has(holder)) add(counts, holder, 1);
  }
  return counts;
}

function findSmallest(
  members: readonly string[],
  counts: ReadonlyMap<string, number>,
): string | undefined {
  let smallest: string | undefined;
  for (const id of members) {
    if (smallest === undefined || (counts.get(id) ?? 0) < (counts.get(smallest) ?? 0))
      smallest = id;
  }
  return smallest;
}

function add(counts: Map<string, number>, id: string, number: number): void {
  counts.set(id, (counts.get(id) ?? 0) + number);
}

/** Of a database whose first node names no number. */
export const DEFAULT_SHARDS = 16;

/** FNV-1a, 32 bits. @returns from 0 to below `shards` */
export function chooseShard(endpointId: string, shards: number): number {
  let hash = 0x81_1c_9d_c5;
  for (const byte of Buffer.from(endpointId)) hash = Math.imul(hash ^ byte, 0x01_00_01_93);
  return (hash >>> 0) % Math.max(1, shards);
}
