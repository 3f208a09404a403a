// What only Docker has: networks, pulled images, volumes with state, and containment.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nameInternalHost } from '../../../src/base/net/internal-host.ts';
import { quoteWord } from '../../../src/base/text/shell-words.ts';
import { DEFAULT_CONTAINMENT } from '../../../src/engine/containment.ts';
import { DockerClient } from '../../../src/engine/docker/docker-client.ts';
import type { ContainerSpec, StateVolume, StateVolumes } from '../../../src/engine/engine.ts';
import { docker } from '../../support/containers/docker.ts';
import { EngineRelay } from '../../support/containers/engine-relay.ts';
import { ImageRegistry } from '../../support/containers/image-registry.ts';
import type { DockerGround } from './docker-ground.ts';
import { type EngineStage, shell } from './engine-stage.ts';

export function describeNetworks(stage: EngineStage, ground: DockerGround): void {
  const waiting = (network: string | null) => stage.run('exec sleep 1000', { network });

  /** Connects from a container in `network`; returns `reached` or `lost`. */
  async function seek(target: string, network: string | null): Promise<string> {
    // A refused connection proves that the target is reachable.
    const script = `
      const socket = require('node:net').connect(9, '${target}');
      socket.setTimeout(1_000, () => socket.destroy(new Error('no answer')));
      socket.on('error', ({ code }) => console.log(code === 'ECONNREFUSED' ? 'reached' : 'lost'));`;
    const args = `${stage.under.node} -e ${quoteWord(script)}`;
    const { id } = await stage.start(stage.spec({ network, args }));
    await stage.untilExited(id);
    return (await stage.untilPrinted(id, '\n')).trim();
  }

  /**
   * Seeks again after another result: on a busy machine an answer can take longer than a second, and once a container in
   * a network that had just been made reached one in another.
   */
  const expectSeek = (target: string, network: string | null) =>
    expect.poll(() => seek(target, network), { timeout: 60_000 });

  /** The address of the container in its only network. */
  const addressOf = ({ id }: ContainerSpec) =>
    docker(
      ...['inspect', '--format', '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}'],
      `${ground.platform}-${id}`,
    );

  const nameApart = () => `${ground.platform}-apart`;
  const listApart = () => docker('network', 'ls', '--filter', `name=${nameApart()}`, '--quiet');

  /** Newer engines refuse a second network of the same name. */
  async function makeApart(): Promise<void> {
    const Labels = { 'millrace.platform': ground.platform };
    const twin = { Name: nameApart(), Labels, CheckDuplicate: false };
    const call = { method: 'POST', path: '/networks/create', body: twin } as const;
    await new DockerClient(ground.host).act(call);
  }

  describe('networks', () => {
    it('connect pods of one name', async () => {
      const { id } = await waiting('shared');
      await expectSeek(nameInternalHost(id), 'shared').toBe('reached');
      expect((await stage.engine.inspect(id))?.ip).toMatch(/^\d+\.\d+\.\d+\.\d+$/);
    });

    it('separate pods of different names', async () => {
      const spec = await waiting('shared');
      const ip = await addressOf(spec);
      await expectSeek(ip, 'shared').toBe('reached');
      await expectSeek(ip, 'other').toBe('lost');
      await expectSeek(ip, null).toBe('lost');
    });

    it('are not created without a request', async () => {
      const spec = await waiting(null);
      expect((await stage.engine.inspect(spec.id))?.ip).toBeNull();
      await expectSeek(await addressOf(spec), null).toBe('lost');
    });

    it('reach the machine', async () => {
      await expectSeek('host.docker.internal', null).toBe('reached');
    });

    it('are removed with their last container', async () => {
      const list = () =>
        docker(
          'network',
          'ls',
          '--filter',
          'label=millrace.network=shared',
          '--format',
          '{{.Name}}',
        );
      const first = await waiting('shared');
      const second = stage.spec({ network: 'shared' });
      await stage.engine.create(second);
      await stage.engine.remove(first.id, 'keep');
      expect(await list()).toContain('shared');
      await stage.engine.remove(second.id, 'keep');
      expect(await list()).not.toContain(`${ground.platform}-`);
    });

    it('are recreated at the next start if they were removed', async () => {
      const { id } = await waiting('shared');
      await stage.engine.stop(id, 0);
      await docker('network', 'rm', `${ground.platform}-net-shared`);
      await stage.engine.start(id);
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'running' });
      await expectSeek(nameInternalHost(id), 'shared').toBe('reached');
    });

    it('become one if they were created twice under one name', async () => {
      await makeApart();
      await makeApart();
      const { id } = await stage.run('exec sleep 1000');
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'running' });
      expect(await listApart()).toMatch(/^\w+$/);
    });

    it('become one if they get a twin during a start', async () => {
      const spec = stage.spec();
      await stage.engine.create(spec);
      const relay = await EngineRelay.start(ground.host);
      const engine = ground.openEngine({ host: relay.host });
      let starts = 0;
      relay.rule = {
        before: async (url) => {
          if (!url.includes('/start')) return;
          starts += 1;
          if (starts === 1) await makeApart();
        },
      };
      await engine.start(spec.id);
      expect(await stage.engine.inspect(spec.id)).toMatchObject({ state: 'running' });
      expect(await listApart()).toMatch(/^\w+$/);
      await engine.close();
      await relay.stop();
    });
  });
}

export function describeImages(stage: EngineStage): void {
  describe('images', () => {
    let registry: ImageRegistry;

    beforeAll(async () => {
      registry = await ImageRegistry.start('ada:secret');
    });
    afterAll(async () => {
      await docker('rmi', '--force', registry.image);
      await registry.stop();
    });

    const login = (server: string, password: string) => ({ server, username: 'ada', password });
    const make = (password: string, server = registry.host) =>
      stage.engine.create(stage.spec({ image: registry.image, registry: login(server, password) }));

    it('are refused to a wrong login', async () => {
      await expect(make('guess')).rejects.toMatchObject({ code: 'refused' });
      expect(await stage.engine.list()).toEqual([]);
    });

    it('are refused if their registry does not have them', async () => {
      const image = `${registry.host}/things/large:1`;
      const spec = stage.spec({ image, registry: login(registry.host, 'secret') });
      await expect(stage.engine.create(spec)).rejects.toMatchObject({ code: 'refused' });
    });

    it('do not get the login of another registry', async () => {
      const before = registry.shown.length;
      const made = make('secret', 'registry.example');
      await expect(made).rejects.toMatchObject({ code: 'refused' });
      expect(registry.shown.slice(before)).toEqual([]);
    });

    it('are pulled once, with their login', async () => {
      await make('secret');
      expect(await stage.engine.list()).toMatchObject([{ state: 'created' }]);
      const asked = registry.shown.length;
      await make('secret');
      expect(registry.shown).toHaveLength(asked);
    });

    it('are unavailable for now if their registry does not respond', async () => {
      const made = stage.engine.create(stage.spec({ image: '127.0.0.1:9/things/small:1' }));
      await expect(made).rejects.toMatchObject({ code: 'unavailable' });
    });

    it.each(['UPPER/case', 'no thing?'])('are refused for an invalid name: %s', async (image) => {
      const made = stage.engine.create(stage.spec({ image }));
      await expect(made).rejects.toMatchObject({ code: 'refused' });
    });
  });

  describe('the metadata of an image', () => {
    const change = `${stage.under.image}-with-check`;

    beforeAll(async () => {
      const id = await docker('create', stage.under.image, 'true');
      const check = 'HEALTHCHECK --interval=200ms --retries=1 CMD test -e /well';
      await docker('commit', '--change', check, '--change', 'LABEL shape=round', id, change);
      await docker('rm', id);
    });
    afterAll(() => docker('rmi', '--force', change));

    it('contains its current health', async () => {
      const args = shell('sleep 0.6; touch /well; sleep 2; rm /well; exec sleep 1000');
      const { id } = await stage.start(stage.spec({ image: change, args }));
      await stage.until(id, ({ health }) => health === 'starting' || health === 'unhealthy');
      await stage.until(id, ({ health }) => health === 'healthy');
      await stage.until(id, ({ health }) => health === 'unhealthy');
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'running' });
    });

    it('does not add labels to the container', async () => {
      const spec = stage.spec({ image: change });
      await stage.engine.create(spec);
      expect((await stage.engine.inspect(spec.id))?.labels).toEqual(spec.labels);
    });
  });
}

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

/** Bits of /proc/PID/status, as capabilities(7) numbers them. */
const USUAL = [0, 1, 3, 4, 5, 6, 7, 10].reduce((bits, bit) => bits + 2 ** bit, 0);
const STATUS = 'grep -E "CapBnd|CapEff|NoNewPrivs" /proc/self/status; echo end';

export function describeContainment(stage: EngineStage, ground: DockerGround): void {
  describe('the permissions of a container', () => {
    const mask = (bits: number) => bits.toString(16).padStart(16, '0');

    it('are those that root in it needs for its own files and users', async () => {
      const { id } = await stage.run(STATUS);
      const printed = await stage.untilPrinted(id, 'end');
      expect(printed).toMatch(new RegExp(`CapEff:\\s+${mask(USUAL)}`));
      expect(printed).toMatch(new RegExp(`CapBnd:\\s+${mask(USUAL)}`));
      expect(printed).toMatch(/NoNewPrivs:\s+1/);
    });

    it('are extended by the operator', async () => {
      const containment = { ...DEFAULT_CONTAINMENT, newPrivileges: 'allowed' as const };
      const engine = ground.openEngine({ containment: { ...containment, capabilities: ['KILL'] } });
      const spec = stage.spec({ args: shell(STATUS) });
      await engine.create(spec);
      await engine.start(spec.id);
      const printed = await stage.untilPrinted(spec.id, 'end');
      expect(printed).toMatch(new RegExp(`CapEff:\\s+${mask(2 ** 5)}`));
      expect(printed).toMatch(/NoNewPrivs:\s+0/);
    });

    it('include a limit of processes', async () => {
      const engine = ground.openEngine({ containment: { ...DEFAULT_CONTAINMENT, pids: 16 } });
      const script = 'for i in $(seq 40); do sleep 1000 & done; echo all';
      const spec = stage.spec({ args: shell(`(${script}) 2>&1; echo end`) });
      await engine.create(spec);
      await engine.start(spec.id);
      expect(await stage.untilPrinted(spec.id, 'end')).toMatch(/fork|unavailable/i);
      expect(engine.capabilities.limits.processes).toBe(true);
      const unlimited = ground.openEngine({ containment: { ...DEFAULT_CONTAINMENT, pids: 0 } });
      expect(unlimited.capabilities.limits.processes).toBe(false);
    });
  });
}
