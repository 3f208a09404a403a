// Which tests belong together, which of them `npm test` leaves to `npm run test:full`, and how long they may take.
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { RunReporter } from './test/support/run-reporter.ts';

type Group = {
  name: string;
  /** Globs of its test files. Default: all in the folder of its name. */
  files?: string[];
  exclude?: string[];
  /** False: files share processes and loaded modules, which saves about 0.25 s of processor time each. */
  isolate?: boolean;
  testTimeoutMs: number;
  hookTimeoutMs: number;
};

const second = 1_000;
const minute = 60 * second;

/** A group `full-…` is what `npm run test:full` runs. */
function defineGroup({ name, testTimeoutMs, hookTimeoutMs, ...rest }: Group) {
  const { files = [`test/${name}/**/*.test.ts`], exclude = [], isolate = true } = rest;
  // A wait that fails before its test does can say what it waited for.
  const env: Record<string, string> = { WAIT_LIMIT_MS: String(0.8 * testTimeoutMs) };
  if (name.startsWith('full-')) env['FULL'] = '1';
  return {
    extends: true as const,
    test: {
      name,
      include: files,
      exclude,
      isolate,
      env,
      testTimeout: testTimeoutMs,
      hookTimeout: hookTimeoutMs,
    },
  };
}

/** The runs that npm starts by name. */
const RUNS = {
  test: {
    minutes: 4,
    rest: 'not run: tests that need Docker, Postgres, Chromium, nginx or root, or take long; npm run test:full',
  },
  'test:full': { minutes: 14 },
};
const run = Object.entries(RUNS).find(([name]) => name === process.env['npm_lifecycle_event'])?.[1];

function locate(path: string): string {
  return fileURLToPath(new URL(path, import.meta.url));
}

/** Unit tests that need root, or take more than 10 s. */
const LONG_UNIT = [
  'cli/worker/handler-version',
  'engine/kubernetes/replaced-leader',
  'engine/process/{damaged-records,pod-user}',
  'platform/compute/endpoint-remains',
  'process/{model-faults,model-stops,park-helper}',
  'store/live/random-operations',
  'worker/containment',
  'worker/parking/ledger-file',
].map(locateUnitTest);

/** What `npm test` runs of the suites of seams: the implementations without a server of their own. */
const EMBEDDED = [
  'test/conformance/*.test.ts',
  'test/conformance/engine/engine-process.test.ts',
  'test/conformance/link/*.test.ts',
  'test/conformance/store/{memory-store,store}.test.ts',
];

/** What `npm test` runs with real processes: jobs through all layers, and kills. */
const CORE_E2E = [
  'test/e2e/api/!(outcomes).test.ts',
  'test/e2e/cli/worker.test.ts',
  'test/e2e/kills.test.ts',
  'test/histories/platform.test.ts',
];

/** Unit tests that kill threads or replace built-ins: each needs a process of its own. */
const ISOLATED = [
  'worker/{process-start,replaced-built-ins}',
  'worker/execution/thread-executor',
].map(locateUnitTest);

function locateUnitTest(path: string): string {
  return `test/unit/${path}.test.ts`;
}

export default defineConfig({
  resolve: {
    // The package's own name means its sources, as in tsconfig.json: a test never sees a stale build.
    alias: [
      { find: /^millrace$/, replacement: locate('src/index.ts') },
      { find: /^millrace\/testing$/, replacement: locate('src/testing.ts') },
      { find: /^millrace\/client$/, replacement: locate('src/client.ts') },
      { find: /^millrace\/outgoing$/, replacement: locate('src/outgoing.ts') },
      { find: /^millrace\/process$/, replacement: locate('src/process.ts') },
      { find: /^millrace\/storage$/, replacement: locate('src/storage.ts') },
      { find: /^millrace\/server$/, replacement: locate('src/server.ts') },
    ],
  },
  test: {
    environment: 'node',
    // Test files start processes of their own, and wait half of their time: three keep two cores busy, more starve
    // them. Those of `test:full` also wait for containers, servers and takeovers.
    maxWorkers: run === RUNS['test:full'] ? 4 : 3,
    globalSetup: locate('test/support/leftovers.ts'),
    // The check for leftovers waits for processes that are ending.
    teardownTimeout: minute,
    reporters: [new RunReporter(run)],
    // Vitest starts projects in the order of their names: the many short files of `unit` fill the end of a run.
    // Only a guard against hanging: the default of 1 s is too short on a loaded machine.
    expect: { poll: { timeout: 30 * second } },
    projects: [
      defineGroup({
        name: 'unit',
        // Not deeper: an example may have packages of its own installed, and npm links this one there.
        files: ['test/unit/**/*.test.ts', 'examples/*/*.test.ts', 'test/histories/rules.test.ts'],
        exclude: [...ISOLATED, ...LONG_UNIT],
        isolate: false,
        testTimeoutMs: minute,
        hookTimeoutMs: minute,
      }),
      defineGroup({
        name: 'isolated-unit',
        files: ISOLATED,
        testTimeoutMs: minute,
        hookTimeoutMs: minute,
      }),
      defineGroup({
        name: 'full-unit',
        files: LONG_UNIT,
        testTimeoutMs: minute,
        hookTimeoutMs: minute,
      }),
      defineGroup({
        name: 'conformance',
        files: EMBEDDED,
        testTimeoutMs: 90 * second,
        hookTimeoutMs: minute,
      }),
      defineGroup({
        name: 'full-conformance',
        files: ['test/conformance/**/*.test.ts'],
        exclude: EMBEDDED,
        testTimeoutMs: 90 * second,
        hookTimeoutMs: minute,
      }),
      defineGroup({ name: 'simulation', testTimeoutMs: 5 * minute, hookTimeoutMs: minute }),
      defineGroup({
        name: 'full-simulation',
        files: ['test/simulation/simulation.test.ts'],
        testTimeoutMs: 5 * minute,
        hookTimeoutMs: minute,
      }),
      defineGroup({
        name: 'e2e',
        files: CORE_E2E,
        isolate: false,
        testTimeoutMs: 4 * minute,
        hookTimeoutMs: 2 * minute,
      }),
      defineGroup({
        name: 'full-e2e',
        files: ['test/e2e/**/*.test.ts', 'test/histories/{lies,nodes}.test.ts'],
        exclude: CORE_E2E,
        isolate: false,
        testTimeoutMs: 4 * minute,
        hookTimeoutMs: 2 * minute,
      }),
      // Asked for by `npm run test:gpu` alone: it needs a machine with an NVIDIA GPU.
      defineGroup({ name: 'gpu', testTimeoutMs: minute, hookTimeoutMs: minute }),
      // Asked for by `npm run test:kubernetes` alone: it needs etcd and a kube-apiserver.
      defineGroup({ name: 'kubernetes', testTimeoutMs: 4 * minute, hookTimeoutMs: 4 * minute }),
      defineGroup({ name: 'soak', testTimeoutMs: 30 * minute, hookTimeoutMs: 4 * minute }),
    ],
  },
});
