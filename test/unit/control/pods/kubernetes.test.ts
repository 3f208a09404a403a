// `kubernetes` of a pod: from its template, checked against the engine, and a part of the container.
import { expect, it, onTestFinished } from 'vitest';
import { OWNER } from '../../../../src/store/store.ts';
import { kubernetesLimits } from '../../../../src/wire/engine/kubernetes.ts';
import type { TemplateRecord } from '../../../../src/wire/resources/template.ts';
import { PodWorld } from '../../../support/containers/pod-world.ts';
import { NO_NAMES } from '../../../support/no-names.ts';

const template: TemplateRecord = {
  ...{ id: 'tpl_1', name: 't', image: 'i', args: '', env: {}, disk: 7, ports: [] },
  ...{ registry: null, handler: null, version: 1, createdAt: '2026-01-01T00:00:00.000Z' },
  kubernetes: { nodeSelector: { pool: 'batch' } },
};
const templates = { ...NO_NAMES, find: () => template };
const LIMITS = kubernetesLimits.parse({
  nodeSelector: { pool: ['batch', 'inference'] },
  labels: ['team'],
});

async function openWorld(limits: typeof LIMITS | null = LIMITS) {
  const world = await PodWorld.open({ pods: { templates } });
  onTestFinished(() => world.close());
  world.engine.capabilities.kubernetes = limits;
  return world;
}

it('comes from the template, unless the pod has its own or none', async () => {
  const world = await openWorld();
  const made = await world.create({ template: 'tpl_1' });
  const own = await world.create({ template: 'tpl_1', kubernetes: { labels: { team: 'a' } } });
  const none = await world.create({ template: 'tpl_1', kubernetes: null });
  await world.settle();
  expect(world.host.get(made.id).spec.kubernetes).toEqual(template.kubernetes);
  expect(world.host.get(own.id).spec.kubernetes).toEqual({ labels: { team: 'a' } });
  expect(world.host.get(none.id).spec).not.toHaveProperty('kubernetes');
  const shown = await world.pods.show(await world.pods.find(OWNER, made.id));
  expect(shown.kubernetes).toEqual(template.kubernetes);
});

it('is refused beyond the limits, and on an engine without any', async () => {
  const world = await openWorld();
  await expect(
    world.create({ kubernetes: { nodeSelector: { pool: 'web' } } }),
  ).rejects.toMatchObject({
    ...{
      code: 'invalid',
      errors: [expect.stringMatching(/^kubernetes\.nodeSelector\.pool: "web"/)],
    },
  });
  const docker = await openWorld(null);
  await expect(docker.create({ template: 'tpl_1' })).rejects.toMatchObject({
    ...{
      code: 'invalid',
      errors: ['kubernetes: not available on the engine docker: leave it out'],
    },
  });
  await docker.create({ template: 'tpl_1', kubernetes: null });
});

it('changes with a new container, and null removes it', async () => {
  const world = await openWorld();
  const { id } = await world.create({ template: 'tpl_1' });
  await world.settle();
  const update = async (kubernetes: TemplateRecord['kubernetes'] | null) => {
    await world.pods.update(OWNER, id, { kubernetes: kubernetes ?? null });
    await world.settle();
    const { generation, kubernetes: set } = world.host.get(id).spec;
    return { generation, set };
  };
  const inference = { nodeSelector: { pool: 'inference' } };
  expect(await update(inference)).toEqual({ generation: 2, set: inference });
  expect(await update(inference)).toEqual({ generation: 2, set: inference });
  expect(await update(null)).toEqual({ generation: 3, set: undefined });
  await expect(update({ runtimeClass: 'gvisor' })).rejects.toMatchObject({ code: 'invalid' });
});
