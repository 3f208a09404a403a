// Runs the engine suite on a real Docker Engine, with an image built from this machine's files.
import { afterAll, afterEach, beforeAll, beforeEach, describe } from 'vitest';
import { findParts, importBaseImage } from '../../support/containers/base-image.ts';
import { findEngineTrouble, removeWithDescendants } from '../../support/containers/docker.ts';
import {
  describeContainment,
  describeImages,
  describeNetworks,
  describeStateVolumes,
} from './docker-features.ts';
import { DockerGround } from './docker-ground.ts';
import { describeGrowth, describeTroubles } from './docker-troubles.ts';
import { describeEngine } from './engine.ts';
import { EngineStage, type EngineUnderTest } from './engine-stage.ts';

const HOOK_MS = 120_000;

const parts = findParts();
const trouble = (await findEngineTrouble()) ?? (typeof parts === 'string' ? parts : undefined);
// Skipped without an engine on a laptop; a missing engine fails the run in CI.
const isLeftOut = trouble !== undefined && !process.env['CI'];
if (isLeftOut)
  console.warn(`test/conformance/engine/engine-docker.test.ts is left out: ${trouble}`);

const ground = new DockerGround();
const under: EngineUnderTest = {
  name: 'of Docker',
  image: `millrace-test-${process.pid}/engine:1`,
  node: 'node',
  mountRoot: '',
  addedVariables: ['PATH', 'HOME', 'HOSTNAME', 'NODE_EXTRA_CA_CERTS', 'NVIDIA_VISIBLE_DEVICES'],
  gpus: [],
  limitsMemory: true,
  // A call takes tens of milliseconds.
  cutDelaysMs: [0, 5, 50],
  open: () => ground.open(),
};

describe.skipIf(isLeftOut)('on a real engine', () => {
  beforeAll(async () => {
    if (trouble !== undefined || typeof parts === 'string') throw new Error(trouble);
    await importBaseImage(under.image, parts);
  }, HOOK_MS);

  afterAll(() => removeWithDescendants(under.image), HOOK_MS);

  describeEngine(under);

  describe('features of containers only', () => {
    const stage = new EngineStage(under);

    beforeEach(() => stage.set());
    afterEach(() => stage.clear());

    describeContainment(stage, ground);
    describeGrowth(stage, ground);
    describeImages(stage);
    describeNetworks(stage, ground);
    describeStateVolumes(stage, ground);
    describeTroubles(stage, ground);
  });
});
