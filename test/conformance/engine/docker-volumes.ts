// State volumes of endpoints: which containers share them, and when they are removed.
import { describe, expect, it } from 'vitest';
import type { StateVolume, StateVolumes } from '../../../src/engine/engine.ts';
import { docker } from '../../support/containers/docker.ts';
import type { DockerGround } from './docker-ground.ts';
import type { EngineStage } from './engine-stage.ts';

const note = 'echo "found [$(cat /state/note 2>/dev/null)]"; echo kept > /state/note; sleep 1000';

export function describeStateVolumes(stage: EngineStage, ground: DockerGround): void {
  const first: StateVolume = { endpointId: 'ep_a', slot: 0, path: '/state' };
  const list = () => docker('volume', 'ls', '--quiet', '--filter', `name=${ground.platform}-`);

  function volumes(): StateVolumes {
    const { stateVolumes } = stage.engine;
    if (!stateVolumes) throw new Error('the engine has no state volumes');
    return stateVolumes;
  }

  /** Returns what a container of another pod finds in the volume. */
  async function find(stateVolume: StateVolume): Promise<string> {
    const { id } = await stage.run(note, { stateVolume });
    return stage.untilPrinted(id, 'found [');
  }

  describe('a state volume', () => {
    it('is visible to its next pod, also after a SIGKILL, and to no other', async () => {
      const killed = await stage.run(note, { stateVolume: first });
      expect(await stage.untilPrinted(killed.id, 'found [')).toContain('found []');
      await expect
        .poll(() => docker('exec', `${ground.platform}-${killed.id}`, 'cat', '/state/note'))
        .toBe('kept');
      await stage.engine.remove(killed.id, 'remove');
      expect(await find(first)).toContain('found [kept]');
      expect(await find({ ...first, slot: 1 })).toContain('found []');
      expect(await find({ ...first, endpointId: 'ep_b' })).toContain('found []');
      for (const { id } of await stage.engine.list()) await stage.engine.remove(id, 'remove');
      expect((await volumes().listEndpoints()).sort()).toEqual(['ep_a', 'ep_b']);
      await volumes().remove('ep_a');
      expect(await volumes().listEndpoints()).toEqual(['ep_b']);
      await volumes().remove('ep_b');
      expect(await list()).toBe('');
    });

    it('cannot be removed while a container uses it, and belongs to one platform', async () => {
      const { id } = await stage.run(note, { stateVolume: first });
      await expect(volumes().remove('ep_a')).rejects.toMatchObject({ code: 'unavailable' });
      const other = ground.openEngine({ platform: `${ground.platform}-other` });
      expect(await other.stateVolumes.listEndpoints()).toEqual([]);
      await other.stateVolumes.remove('ep_a');
      await other.close();
      expect(await volumes().listEndpoints()).toEqual(['ep_a']);
      await stage.engine.remove(id, 'remove');
      await volumes().remove('ep_a');
      await volumes().remove('ep_a');
      expect(await list()).toBe('');
    });
  });
}
