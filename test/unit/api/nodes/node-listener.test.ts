// The port for other nodes as strangers and nodes see it, and what a client can do with its headers.
import { describe, expect, it } from 'vitest';
import { MAX_CALL_BYTES, NodeClient } from '../../../../src/api/nodes/node-client.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import { ENDPOINT, exchange, readJson } from '../../../support/api/platform.ts';
import { SECRET, startNodes } from '../../../support/api/two-nodes.ts';

const JOB = '01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76';

describe('the port for other nodes', () => {
  it.each([
    ['no secret', ''],
    ['a wrong secret', 'millrace-node-secret: wrong\r\n'],
    ['an empty secret', 'millrace-node-secret: \r\n'],
    ['two secrets', `millrace-node-secret: ${SECRET}\r\nmillrace-node-secret: ${SECRET}\r\n`],
  ])('answers %s with 401 and nothing else, and closes', async (_name, header) => {
    const { owner } = await startNodes();
    for (const path of ['/healthz', `/v2/${ENDPOINT}/health`, '/node/ping', '/none']) {
      const answer = await exchange(portOf(owner.nodeUrl), [
        `GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${owner.admin}\r\n${header}\r\n`,
      ]);
      expect(answer.split('\r\n').filter((line) => !line.startsWith('Date:'))).toEqual([
        ...['HTTP/1.1 401 Unauthorized', 'connection: close', 'content-length: 0', '', ''],
      ]);
    }
  });

  it.each(['nonsense\r\n\r\n', 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n'])(
    'closes without an answer on %j',
    async (sent) => {
      const { owner } = await startNodes();
      expect(await exchange(portOf(owner.nodeUrl), [sent])).toBe('');
    },
  );

  it('needs the key of a client, too', async () => {
    const { owner } = await startNodes();
    const headers = { 'millrace-node-secret': SECRET };
    const answer = await fetch(`${owner.nodeUrl}/v2/${ENDPOINT}/health`, { headers });
    expect(answer.status).toBe(401);
    expect(await answer.json()).toMatchObject({ code: 'unauthorized' });
  });

  it('accepts each of several secrets and sends the first', async () => {
    const secrets = ['new', SECRET];
    const { other, owner } = await startNodes({ forwarding: { secrets } });
    for (const secret of secrets) {
      const client = new NodeClient({ secrets: [secret] });
      expect(await client.call(owner.nodeUrl, 'ping', null, { timeoutMs: 5_000 })).toEqual({});
      client.close();
    }
    expect((await other.call(`/v2/${ENDPOINT}/health`)).status).toBe(200);
  });

  it('refuses a node with another secret: its client gets 503, not 401', async () => {
    const secrets = ['mine'];
    const { owner } = await startNodes();
    const { move, other } = await startNodes({
      forwarding: { secrets, bounds: { ownerWaitMs: 300 } },
    });
    move(owner.nodeUrl);
    other.placement.learn();
    expect((await other.call(`/v2/${ENDPOINT}/health`)).status).toBe(503);
    expect(other.logged()).toContain('"end":"denied"');
  });
});

describe('a call of another node', () => {
  const options = { timeoutMs: 5_000 };

  it('carries JSON to the platform and back', async () => {
    const calls: unknown[] = [];
    const onCall = async (name: string, body: unknown) => {
      calls.push([name, body]);
      if (name === 'none') throw new ProblemError('not_found', 'call none not found');
      if (name === 'broken') throw new Error('a secret detail');
      return name === 'silent' ? undefined : { taken: true };
    };
    const { other, owner } = await startNodes({ forwarding: { onCall } });
    const client = new NodeClient({ secrets: [SECRET] });
    const call = (name: string, body: unknown) => client.call(owner.nodeUrl, name, body, options);
    expect(await call('take shard', { shard: 3 })).toEqual({ taken: true });
    expect(await call('silent', null)).toBe(null);
    await expect(call('none', 1)).rejects.toMatchObject({ status: 404 });
    await expect(call('broken', 1)).rejects.toMatchObject({
      ...{ status: 500, message: expect.not.stringContaining('detail') },
    });
    await expect(call('large', 'x'.repeat(MAX_CALL_BYTES))).rejects.toMatchObject({ status: 413 });
    expect(calls).toEqual([
      ...[
        ['take shard', { shard: 3 }],
        ['silent', null],
        ['none', 1],
        ['broken', 1],
      ],
    ]);
    expect((await other.post('/node/silent', {})).status).toBe(404);
    client.close();
  });

  it('ends after its time, and when the node is gone', async () => {
    const onCall = () => new Promise(() => {});
    const { owner } = await startNodes({ forwarding: { onCall } });
    const client = new NodeClient({ secrets: [SECRET] });
    const hung = client.call(owner.nodeUrl, 'hang', null, { timeoutMs: 50 });
    await expect(hung).rejects.toThrow('no answer within 50 ms');
    await owner.close();
    await expect(client.call(owner.nodeUrl, 'x', null, options)).rejects.toThrow('ECONNREFUSED');
    client.close();
  });
});

describe('headers between nodes on the public port', () => {
  it('have no effect, at the owner and through another node', async () => {
    const { other, owner } = await startNodes();
    const headers = {
      'millrace-node-secret': SECRET,
      'millrace-node-job': `${JOB} repeat`,
      'millrace-node-client': '10.9.8.7+tls',
      'Millrace-Node-Answer': 'not_owner',
    };
    for (const node of [owner, other]) {
      const path = `/v2/${ENDPOINT}/run`;
      const answer = await node.post(path, { input: {} }, { headers });
      expect(answer.status).toBe(200);
      expect((await readJson(answer))['id']).not.toBe(JOB);
    }
  });
});

function portOf(url: string): number {
  return Number(new URL(url).port);
}
