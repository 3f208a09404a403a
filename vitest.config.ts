// Which tests belong together, how long they may take, and what a run prints last.
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { SummaryReporter } from './test/support/summary-reporter.ts';

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

function defineGroup({ name, testTimeoutMs, hookTimeoutMs, ...rest }: Group) {
  const { files = [`test/${name}/**/*.test.ts`], exclude = [], isolate = true } = rest;
  return {
    extends: true as const,
    test: {
      name,
      include: files,
      exclude,
      isolate,
      testTimeout: testTimeoutMs,
      hookTimeout: hookTimeoutMs,
    },
  };
}

function locate(path: string): string {
  return fileURLToPath(new URL(path, import.meta.url));
}

/** Unit tests that take more than about 4 s: they start processes or threads, or play thousands of cases. */
const SLOW = [
  'api/{grpc,isolation,jobs,key-end,key-secrecy,stream}',
  'api/limits/bounds',
  'api/openapi/operations',
  'api/proxy/lb-proxy',
  'api/runpod/runpod-worker',
  'cli/commands/doctor',
  'control/{reconciler-kills,scaler-laws}',
  'control/endpoints/endpoint-deletion',
  'control/scaling/fleet',
  'engine/kubernetes/replaced-leader',
  'engine/process/{damaged-records,process-ends}',
  'handlers/image',
  'process/model-{calls,stops}',
  'queue/webhooks/webhook-sender',
  'support/summary-reporter',
  'transport/*/*',
  'wire/chunk/chunk',
  'worker/supervisor/supervisor',
].map(locateUnitTest);

/** Unit tests that kill threads or change built-ins: each needs a process of its own. */
const ISOLATED = [
  'handler/built-ins',
  'worker/{containment,contamination,process-start}',
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
    // Test files start processes of their own, and wait half of their time: three keep two cores busy,
    // more starve them.
    maxWorkers: 3,
    globalSetup: locate('test/support/leftovers.ts'),
    // The check for leftovers waits for processes that are ending.
    teardownTimeout: minute,
    reporters: ['default', new SummaryReporter()],
    // Only a guard against hanging: the default of 1 s is too short on a loaded machine.
    expect: { poll: { timeout: 30 * second } },
    projects: [
      defineGroup({
        name: 'unit',
        // Not deeper: an example may have packages of its own installed, and npm links this one there.
        files: ['test/unit/**/*.test.ts', 'examples/*/*.test.ts'],
        exclude: ISOLATED,
        isolate: false,
        testTimeoutMs: minute,
        hookTimeoutMs: minute,
      }),
      defineGroup({
        name: 'unit-isolated',
        files: ISOLATED,
        testTimeoutMs: minute,
        hookTimeoutMs: minute,
      }),
      // `npm run test:quick`, while you work.
      defineGroup({
        name: 'quick',
        files: ['test/unit/**/*.test.ts'],
        exclude: [...SLOW, ...ISOLATED],
        isolate: false,
        testTimeoutMs: minute,
        hookTimeoutMs: minute,
      }),
      defineGroup({ name: 'conformance', testTimeoutMs: 90 * second, hookTimeoutMs: 60 * second }),
      defineGroup({ name: 'simulation', testTimeoutMs: 5 * minute, hookTimeoutMs: minute }),
      defineGroup({
        name: 'e2e',
        isolate: false,
        testTimeoutMs: 4 * minute,
        hookTimeoutMs: 2 * minute,
      }),
      // Asked for by `npm run test:gpu` alone: it needs a machine with an NVIDIA GPU.
      defineGroup({ name: 'gpu', testTimeoutMs: minute, hookTimeoutMs: minute }),
      // Asked for by `npm run test:kubernetes` alone: it needs etcd and a kube-apiserver.
      defineGroup({ name: 'kubernetes', testTimeoutMs: 4 * minute, hookTimeoutMs: 4 * minute }),
      defineGroup({ name: 'soak', testTimeoutMs: 30 * minute, hookTimeoutMs: 2 * minute }),
    ],
  },
});
