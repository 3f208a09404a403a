import { expect, it } from 'vitest';
import { showOwnStack } from '../../../src/cli/own-stack.ts';

const view = {
  folder: '/home/me/project',
  packageUrl: 'file:///home/me/project/node_modules/millrace/',
};

it('shows the frames of the handler and its packages, with paths from the folder', () => {
  const stack = `TypeError: no file:///home/me/x
    at deep (file:///home/me/project/handlers/a%20b.ts:3:41)
    at async load (file:///home/me/project/node_modules/model/index.js:7:1)
    at file:///opt/shared/lib.js:1:2
    at default.next (<anonymous>)
    at #drive (file:///home/me/project/node_modules/millrace/dist/chunks/bind.js:1:2)
    at process.processTicksAndRejections (node:internal/process/task_queues:105:5)
    at node:internal/main/worker_thread:214:26
caused by: Error: two
lines
    at Array.map (<anonymous>)
    at async #run (file:///home/me/project/node_modules/millrace/src/x.ts:9:13)`;
  expect(showOwnStack(stack, view)).toBe(`TypeError: no file:///home/me/x
    at deep (handlers/a b.ts:3:41)
    at async load (node_modules/model/index.js:7:1)
    at /opt/shared/lib.js:1:2
caused by: Error: two
lines
    at Array.map (<anonymous>)`);
});

it('leaves text without frames as it is', () => {
  expect(showOwnStack('no stack, at all', view)).toBe('no stack, at all');
  for (const place of ['file://host/x:1:2', 'file:///a%2Fb:1:2', 'x:1:2']) {
    expect(showOwnStack(`    at x (${place})`, view)).toBe(`    at x (${place})`);
  }
});
