// Which node claims and offers which shards.
import { describe, expect, it } from 'vitest';
import type { ClusterView, NodeView } from '../../../src/cluster/cluster-rows.ts';
import { planShards } from '../../../src/cluster/plan-shards.ts';
import { fc } from '../../support/properties.ts';

type State = 'live' | 'dead' | 'leaving';

function node(id: string, state: State = 'live'): NodeView {
  return {
    id,
    url: `http://${id}`,
    isLive: state !== 'dead',
    isLeaving: state === 'leaving',
    version: 1,
    controlNumber: 0,
  };
}

/** One letter a shard: the node that owns it, `-` for none, and a capital for an offer to the node of that letter. */
function view(nodes: readonly NodeView[], owners: string): ClusterView {
  const shards = [...owners].map((letter, id) => ({
    id,
    owner: /[a-z]/.test(letter) ? letter : null,
    offeredTo: /[A-Z]/.test(letter) ? letter.toLowerCase() : null,
    failedOn: null,
    epoch: 0,
  }));
  return { nodes, shards };
}

describe('planShards', () => {
  const [a, b, c] = [node('a'), node('b'), node('c')];
  const none: { shard: number; to: string }[] = [];

  it.each([
    ['one node claims all', [a], '----', 'a', [0, 1, 2, 3], none],
    ['two nodes share what has no owner', [a, b], '----', 'a', [0, 2], none],
    ['the other node claims the rest', [b, a], '----', 'b', [1, 3], none],
    ['nothing changes once the shares are fair', [a, b], 'abab', 'a', [], none],
    ['an odd shard stays where it is', [a, b], 'babbaab', 'b', [], none],
    ['a joining node is offered its share', [a, b], 'aaaa', 'a', [], offers('3b 2b')],
    ['a joining node offers nothing', [a, b], 'aaaa', 'b', [], none],
    ['what is offered already counts', [a, b], 'aaaB', 'a', [], offers('2b')],
    ['an offered shard is claimed', [a, b], 'aaBB', 'b', [2, 3], none],
    ['nobody else claims it', [a, b, c], 'acBB', 'c', [], none],
    ['shards of a dead node are shared', [a, b, node('c', 'dead')], 'cabcc', 'a', [0, 4], none],
    ['and by the other node too', [a, b, node('c', 'dead')], 'cabcc', 'b', [3], none],
    ['shards of an unknown node are shared', [a], 'zaz', 'a', [0, 2], none],
    ['an offer to a dead node falls back', [a, node('b', 'dead')], 'aaBB', 'a', [2, 3], none],
    ['an offer to an unknown node falls back', [a], 'aZ', 'a', [1], none],
    ['an offer to a leaving node falls back', [a, node('b', 'leaving')], 'aB', 'a', [1], none],
    ['a leaving node claims nothing', [a, node('b', 'leaving')], '-B', 'b', [], none],
    [
      'a leaving node offers all, the shard of the leader too',
      [node('a', 'leaving'), b, c],
      'aaaa',
      'a',
      [],
      offers('3b 2b 1c 0c'),
    ],
    ['the last node that leaves offers nothing', [node('a', 'leaving')], 'aa', 'a', [], none],
    [
      'a node that counts as dead offers all',
      [node('a', 'dead'), b],
      'aa',
      'a',
      [],
      offers('1b 0b'),
    ],
    ['a node without a row offers all', [b], 'aa', 'a', [], offers('1b 0b')],
    ['a node without a row claims nothing', [b], '--', 'a', [], none],
    ['the shard of the leader stays', [a, b], 'aa', 'a', [], offers('1b')],
    ['a single shard stays', [a, b, c], 'b', 'b', [], none],
    ['nodes without a share get nothing', [a, b, c], 'ba', 'a', [], none],
    ['fewer shards than nodes are spread', [a, b, c], 'bb', 'b', [], offers('1a')],
    ['without nodes nothing happens', [], '-a', 'x', [], none],
    ['without shards nothing happens', [a], '', 'a', [], none],
  ] as const)('%s', (_title, nodes, owners, me, claim, offer) => {
    expect(planShards(view(nodes, owners), me)).toEqual({ claim, offer });
  });
});

describe('a shard that a node could not open', () => {
  const [a, b] = [node('a'), node('b')];
  const failedOn = (id: string, nodes: readonly NodeView[], owners: string): ClusterView => {
    const { shards } = view(nodes, owners);
    return { nodes, shards: shards.map((shard) => ({ ...shard, failedOn: id })) };
  };

  it('is claimed by another node', () => {
    expect(planShards(failedOn('a', [a, b], '---'), 'b').claim).toEqual([0, 1, 2]);
    expect(planShards(failedOn('a', [a, b], '---'), 'a').claim).toEqual([]);
  });

  it('is claimed by this node if there is no other', () => {
    expect(planShards(failedOn('a', [a, node('b', 'dead')], '--'), 'a').claim).toEqual([0, 1]);
  });

  it('is not offered to this node', () => {
    expect(planShards(failedOn('a', [a, b], 'bbbb'), 'b').offer).toEqual([]);
    const some = view([a, b], 'bbbb');
    const shards = some.shards.map((shard) => ({ ...shard, failedOn: shard.id > 1 ? 'a' : null }));
    expect(planShards({ ...some, shards }, 'b').offer).toEqual(offers('1a'));
  });
});

/** `3b 2c`: shard 3 to b, shard 2 to c. */
function offers(text: string): { shard: number; to: string }[] {
  return text.split(' ').map((part) => ({
    shard: Number(part.slice(0, -1)),
    to: part.slice(-1),
  }));
}

const IDS = [...'abcdefg'];

const anyView = fc
  .record({
    states: fc.array(fc.constantFrom<State>('live', 'live', 'live', 'dead', 'leaving'), {
      minLength: 1,
      maxLength: IDS.length,
    }),
    owners: fc.array(fc.constantFrom(...'-abcdefgzABCDEFGZ'), { minLength: 1, maxLength: 33 }),
  })
  .map(({ owners, states }) =>
    view(
      states.map((state, index) => node(IDS[index] ?? '', state)),
      owners.join(''),
    ),
  );

const anyCounts = fc.array(fc.nat({ max: 12 }), { minLength: 1, maxLength: IDS.length });

/** Tries every choice of the nodes that get one shard more than the others. */
function findFewestMoves(counts: readonly number[]): number {
  const total = counts.reduce((sum, count) => sum + count, 0);
  const floor = Math.floor(total / counts.length);
  let fewest = total;
  for (let chosen = 0; chosen < 2 ** counts.length; chosen++) {
    const shares = counts.map((_, index) => floor + ((chosen >> index) & 1));
    if (shares.reduce((sum, share) => sum + share, 0) !== total) continue;
    const moves = counts.map((count, index) => Math.max(0, count - (shares[index] ?? 0)));
    fewest = Math.min(
      fewest,
      moves.reduce((sum, count) => sum + count, 0),
    );
  }
  return fewest;
}

function membersOf({ nodes }: ClusterView): string[] {
  return nodes.filter(({ isLeaving, isLive }) => isLive && !isLeaving).map(({ id }) => id);
}

/** All nodes carry out their plans for the same view. */
function playRound(before: ClusterView): ClusterView {
  const plans = before.nodes
    .filter(({ isLive }) => isLive)
    .map(({ id }) => ({ id, plan: planShards(before, id) }));
  const shards = before.shards.map((shard) => {
    const claimant = plans.find(({ plan }) => plan.claim.includes(shard.id));
    if (claimant) return { ...shard, owner: claimant.id, offeredTo: null, epoch: shard.epoch + 1 };
    const offer = plans.flatMap(({ plan }) => plan.offer).find((each) => each.shard === shard.id);
    return offer ? { ...shard, owner: null, offeredTo: offer.to } : shard;
  });
  return { nodes: before.nodes, shards };
}

function countOf({ shards }: ClusterView, id: string): number {
  return shards.filter(({ owner }) => owner === id).length;
}

describe('the plans of all nodes', () => {
  it('let exactly one node claim each shard that no live node owns', () => {
    fc.assert(
      fc.property(anyView, (before) => {
        const live = new Set(before.nodes.filter(({ isLive }) => isLive).map(({ id }) => id));
        const members = membersOf(before);
        const claimed = members.flatMap((id) => planShards(before, id).claim);
        const free = before.shards.filter(({ owner }) => owner === null || !live.has(owner));
        expect(claimed.toSorted((x, y) => x - y)).toEqual(
          members.length > 0 ? free.map(({ id }) => id) : [],
        );
      }),
    );
  });

  it('let only owners offer, and only to members, and each shard once', () => {
    fc.assert(
      fc.property(anyView, (before) => {
        const members = membersOf(before);
        for (const { id } of before.nodes) {
          const { claim, offer } = planShards(before, id);
          for (const { shard, to } of offer) {
            expect(before.shards[shard]?.owner).toBe(id);
            expect(members).toContain(to);
            expect(to).not.toBe(id);
          }
          const touched = [...claim, ...offer.map(({ shard }) => shard)];
          expect(new Set(touched).size).toBe(touched.length);
        }
      }),
    );
  });

  it('reach fair shares in three rounds, and then change nothing', () => {
    fc.assert(
      fc.property(anyView, (before) => {
        const members = membersOf(before);
        fc.pre(members.length > 0);
        const after = playRound(playRound(playRound(before)));
        const average = before.shards.length / members.length;
        for (const id of members) {
          expect(countOf(after, id)).toBeGreaterThanOrEqual(Math.floor(average));
          expect(countOf(after, id)).toBeLessThanOrEqual(Math.ceil(average));
        }
        expect(playRound(after)).toEqual(after);
      }),
    );
  });

  it('move no more shards than fair shares need', () => {
    fc.assert(
      fc.property(anyCounts, (counts) => {
        const ids = IDS.slice(0, counts.length);
        const owners = counts.map((count, index) => (IDS[index] ?? '').repeat(count)).join('');
        const before = view(
          ids.map((id) => node(id)),
          owners,
        );
        const moved = ids.flatMap((id) => planShards(before, id).offer);
        expect(moved.length).toBe(findFewestMoves(counts));
      }),
    );
  });

  it('leave the shard of the leader where it is while its owner stays', () => {
    fc.assert(
      fc.property(anyView, (before) => {
        const owner = before.shards[0]?.owner ?? '';
        fc.pre(membersOf(before).includes(owner));
        expect(playRound(playRound(before)).shards[0]?.owner).toBe(owner);
      }),
    );
  });
});
