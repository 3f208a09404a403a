// Pulling images from registries, and the metadata of images.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { docker } from '../../support/containers/docker.ts';
import { ImageRegistry } from '../../support/containers/image-registry.ts';
import { type EngineStage, shell } from './engine-stage.ts';

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
