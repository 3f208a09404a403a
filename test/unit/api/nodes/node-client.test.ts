import { expect, it } from 'vitest';
import { readNodeAddress } from '../../../../src/api/nodes/node-client.ts';

it.each([
  ['http://10.0.0.5:8091', '10.0.0.5', '8091'],
  ['http://[fd00::5]:8091', 'fd00::5', '8091'],
  ['http://node-a.internal', 'node-a.internal', '80'],
])('reads %s', (url, hostname, port) => {
  expect(readNodeAddress(url)).toEqual({ hostname, port });
});
