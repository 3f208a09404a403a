// Which containers a container can reach, and by which names.
import { describe, expect, it } from 'vitest';
import { nameInternalHost } from '../../../src/base/net/internal-host.ts';
import { quoteWord } from '../../../src/base/text/shell-words.ts';
import { DockerClient } from '../../../src/engine/docker/docker-client.ts';
import type { ContainerSpec } from '../../../src/engine/engine.ts';
import { docker } from '../../support/containers/docker.ts';
import { EngineRelay } from '../../support/containers/engine-relay.ts';
import type { DockerGround } from './docker-ground.ts';
import type { EngineStage } from './engine-stage.ts';

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

    it('that were removed are recreated at the next start', async () => {
      const { id } = await waiting('shared');
      await stage.engine.stop(id, 0);
      await docker('network', 'rm', `${ground.platform}-net-shared`);
      await stage.engine.start(id);
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'running' });
      await expectSeek(nameInternalHost(id), 'shared').toBe('reached');
    });

    it('that were created twice under one name become one', async () => {
      await makeApart();
      await makeApart();
      const { id } = await stage.run('exec sleep 1000');
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'running' });
      expect(await listApart()).toMatch(/^\w+$/);
    });

    it('that get a twin during a start become one', async () => {
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
