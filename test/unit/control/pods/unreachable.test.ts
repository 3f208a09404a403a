// Pods whose node is gone: nothing is concluded about their containers until it is back.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Unreachable } from '../../../../src/control/pods/pod-lifecycle.ts';
import { PodWorld } from '../../../support/containers/pod-world.ts';

const GONE: Unreachable = { why: 'node a is gone', isGone: true };

async function openWorld() {
  const state: { unreachable: Unreachable | undefined } = { unreachable: undefined };
  const world = await PodWorld.open({
    reconciler: { findUnreachable: () => state.unreachable },
  });
  onTestFinished(() => world.close());
  const show = async (id: string) => {
    const pod = world.pods.live.get(id);
    if (!pod) return undefined;
    const { reason, runtime, status } = await world.pods.show(pod);
    return { reason, runtime: runtime === null ? null : 'known', status };
  };
  const goAway = async (unreachable: Unreachable = GONE) => {
    state.unreachable = unreachable;
    world.host.trouble = new Error('nobody can ask');
    await world.settle(2_000);
  };
  const comeBack = async () => {
    state.unreachable = undefined;
    world.host.trouble = undefined;
    await world.settle(2_500);
  };
  return { world, show, goAway, comeBack };
}

describe('a pod whose node is gone', () => {
  it('keeps its status with the reason and the time, and has no runtime', async () => {
    const { goAway, show, world } = await openWorld();
    const { id } = await world.create();
    await world.settle();
    expect(await show(id)).toEqual({ status: 'RUNNING', reason: null, runtime: 'known' });
    await goAway();
    const reason = expect.stringMatching(/^node a is gone since 2026-01-01T00:00:0\d\.\d{3}Z$/);
    expect(await show(id)).toEqual({ status: 'RUNNING', reason, runtime: null });
    const first = (await show(id))?.reason;
    await world.settle(60_000);
    expect((await show(id))?.reason).toBe(first);
  });

  it('is adopted when its node is back, with the container that still runs', async () => {
    const { comeBack, goAway, show, world } = await openWorld();
    const { generation, id } = await world.create();
    await world.settle();
    await goAway();
    await comeBack();
    expect(await show(id)).toEqual({ status: 'RUNNING', reason: null, runtime: 'known' });
    expect(world.host.get(id).seen).toMatchObject({ generation, state: 'running' });
    expect(world.host.get(id).runsOnDisk).toBe(1);
  });

  it('ends with its container that ended meanwhile, as if its node had been there', async () => {
    const { comeBack, goAway, show, world } = await openWorld();
    const { id } = await world.create();
    await world.settle();
    await goAway();
    world.host.end(id, 0);
    await world.settle(5_000);
    expect((await show(id))?.status).toBe('RUNNING');
    await comeBack();
    expect((await show(id))?.status).toBe('EXITED');
  });

  it('is stopped after the return if that was asked meanwhile', async () => {
    const { comeBack, goAway, world } = await openWorld();
    const { id, userId } = await world.create();
    await world.settle();
    await goAway();
    await world.pods.act(userId, id, 'stop');
    await world.settle(2_000);
    expect(world.host.get(id).seen.state).toBe('running');
    await comeBack();
    expect(world.host.get(id).seen.state).toBe('exited');
  });

  it('is removed at once, and its container when its node is back', async () => {
    const { comeBack, goAway, world } = await openWorld();
    const { id, userId } = await world.create();
    await world.settle();
    await goAway();
    await world.pods.act(userId, id, 'terminate');
    await world.settle();
    expect(world.pods.live.get(id)).toBeUndefined();
    expect(world.host.containers.has(id)).toBe(true);
    await comeBack();
    expect(world.host.containers.has(id)).toBe(false);
  });

  it('is not removed while its node is only silent', async () => {
    const { comeBack, goAway, world } = await openWorld();
    const { id, userId } = await world.create();
    await world.settle();
    await goAway({ why: 'node a does not answer', isGone: false });
    await world.pods.act(userId, id, 'terminate');
    await world.settle(10_000);
    expect(world.pods.live.get(id)?.status).toBe('TERMINATED');
    await comeBack();
    expect(world.pods.live.get(id)).toBeUndefined();
    expect(world.host.containers.has(id)).toBe(false);
  });
});
