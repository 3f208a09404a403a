// The shards of one node, with claims, offers and openings that fail or end when the test says so.
import { beforeEach, expect, it } from 'vitest';
import { letOthersRun, ManualClock } from '../../../src/base/clock.ts';
import { silentLog as log } from '../../../src/base/log.ts';
import type { ClusterView, ShardView } from '../../../src/cluster/cluster-rows.ts';
import { LocalShards, type OpenShard, ServedShards } from '../../../src/cluster/local-shards.ts';

const ME = 'a';
const OTHER = 'b';
const SHARD = 1;

const node = (id: string) => ({
  ...{ id, url: `http://${id}`, isLive: true, isLeaving: false, version: 1, controlNumber: 0 },
});

let clock: ManualClock;
let shard: ShardView;
let opening: PromiseWithResolvers<OpenShard>;
let openings: number;
let lose: () => void;
let closed: number;
let abandoned: number;
let closing: Promise<void>;
let offers: (string | null)[];
let givenTo: string[];
let isServing: boolean;
/** Nodes besides this one. */
let others: string[];
let offer: () => Promise<void>;
let served: ServedShards;
let shards: LocalShards;

const view = (): ClusterView => ({
  nodes: [ME, ...others].map(node),
  // The other node has its share.
  shards: [{ id: 0, owner: OTHER, offeredTo: null, failedOn: null, epoch: 1 }, shard],
});

beforeEach(() => {
  clock = new ManualClock();
  shard = { id: SHARD, owner: null, offeredTo: null, failedOn: null, epoch: 0 };
  opening = Promise.withResolvers();
  openings = 0;
  closed = 0;
  abandoned = 0;
  closing = Promise.resolve();
  offers = [];
  givenTo = [];
  isServing = true;
  others = [OTHER];
  offer = async () => {
    shard = { ...shard, owner: null };
  };
  const membership = {
    id: ME,
    get view() {
      return view();
    },
    get isServing() {
      return isServing;
    },
    beginLeaving: async () => {},
    giveUp: async (_id: number, to: string) => {
      givenTo.push(to);
      shard = { ...shard, owner: null, offeredTo: to, failedOn: ME };
    },
    claim: async () => {
      shard = { ...shard, owner: ME, epoch: shard.epoch + 1 };
      return true;
    },
    offer: async (_id: number, to: string | null) => {
      offers.push(to);
      await offer();
    },
  };
  served = new ServedShards(membership);
  shards = new LocalShards({
    membership,
    ...{ clock, log },
    open: (_id, onLost) => {
      openings += 1;
      lose = onLost;
      return opening.promise;
    },
    callNode: async () => {},
    served,
  });
});

async function follow() {
  shards.follow(view());
  await letOthersRun();
}

const opened: OpenShard = {
  abandon: () => {
    abandoned += 1;
  },
  close: async () => {
    closed += 1;
    await closing;
  },
};

it('opens a claimed shard again after a failure, with a pause', async () => {
  await follow();
  opening.reject(new Error('no connection'));
  await letOthersRun();
  opening = Promise.withResolvers();
  opening.resolve(opened);
  await follow();
  expect([openings, served.open]).toEqual([1, []]);
  await clock.advance(5_000);
  await follow();
  expect([openings, served.open]).toEqual([2, [SHARD]]);
});

async function failToOpen(times: number) {
  for (let time = 0; time < times; time++) {
    opening = Promise.withResolvers();
    opening.reject(new Error('permission denied'));
    await follow();
    await clock.advance(5_000);
  }
}

it('leaves a shard that it cannot open to the next node', async () => {
  others = ['c', OTHER];
  await failToOpen(1);
  expect([givenTo, served.failing, served.givenUp]).toEqual([[], [SHARD], []]);
  await failToOpen(1);
  expect([givenTo, served.failing, served.givenUp]).toEqual([[OTHER], [], [SHARD]]);
  // It is the turn of the other node.
  const before = openings;
  await clock.advance(60_000);
  await follow();
  expect(openings).toBe(before);
});

it('keeps a shard that it cannot open if there is no other node', async () => {
  others = [];
  await failToOpen(5);
  expect([givenTo, served.failing]).toEqual([[], expect.arrayContaining([SHARD])]);
  opening = Promise.withResolvers();
  opening.resolve(opened);
  await follow();
  expect(served.open).toContain(SHARD);
});

it('closes a shard that was lost while it was opened, and may open it again', async () => {
  await follow();
  lose();
  opening.resolve(opened);
  await letOthersRun();
  expect([closed, served.open]).toEqual([1, []]);
  shard = { ...shard, owner: ME };
  await follow();
  expect(openings).toBe(2);
});

it('closes a shard once that is lost while it is closed', async () => {
  opening.resolve(opened);
  await follow();
  const end = Promise.withResolvers<void>();
  closing = end.promise;
  lose();
  lose();
  shard = { ...shard, owner: OTHER };
  await follow();
  end.resolve();
  await letOthersRun();
  expect([closed, served.open, openings]).toEqual([1, [], 1]);
});

it('drops a shard that another node has claimed', async () => {
  opening.resolve(opened);
  await follow();
  shard = { ...shard, owner: OTHER };
  await follow();
  expect([closed, abandoned, served.open, offers]).toEqual([1, 1, [], []]);
});

it('hands over a shard that is still being opened when the node leaves', async () => {
  await follow();
  const left = shards.leave();
  await letOthersRun();
  opening.resolve(opened);
  await left;
  expect([closed, abandoned, served.open, offers]).toEqual([1, 0, [], [OTHER]]);
  await follow();
  expect(openings).toBe(1);
});

it('leaves although an offer fails', async () => {
  opening.resolve(opened);
  await follow();
  offer = () => Promise.reject(new Error('no connection'));
  await shards.leave();
  expect([closed, served.open]).toEqual([1, []]);
});

it('serves a shard again whose offer has failed', async () => {
  opening.resolve(opened);
  await follow();
  offer = () => Promise.reject(new Error('no connection'));
  // Another node needs a share.
  const third = { ...node('c'), id: 'c' };
  const all = [0, 1, 2].map((id) => ({ id, owner: ME, offeredTo: null, failedOn: null, epoch: 1 }));
  shards.follow({ nodes: [node(ME), third], shards: all });
  await letOthersRun();
  shard = { ...shard, owner: ME };
  await follow();
  expect(served.open).toContain(SHARD);
});
