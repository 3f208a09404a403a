// The calls to the Kubernetes API: what an answer may cost.
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { ApiClient, KubernetesError } from '../../../../src/engine/kubernetes/api-client.ts';

/** A client of a server that gives each request the same answer. */
async function openClient(answer: (response: ServerResponse) => void): Promise<ApiClient> {
  const server = createServer((_request, response) => answer(response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : undefined;
  const folder = mkdtempSync(join(tmpdir(), 'millrace-kubeconfig-'));
  const kubeconfig = join(folder, 'config');
  const config = {
    ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'c' },
    clusters: [
      {
        name: 'c',
        cluster: { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true },
      },
    ],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
  };
  writeFileSync(kubeconfig, JSON.stringify(config));
  const client = new ApiClient({ kubeconfig, environment: {} });
  onTestFinished(async () => {
    await client.close();
    server.closeAllConnections();
    server.close();
    rmSync(folder, { recursive: true });
  });
  return client;
}

function failOf(client: ApiClient): Promise<unknown> {
  return client.ask({ method: 'GET', path: '/api/v1/pods' }).catch((error: unknown) => error);
}

it('shortens the text of an error, which users see', async () => {
  const message = `no ${'x'.repeat(20_000)}`;
  const client = await openClient((response) => {
    response.writeHead(403).end(JSON.stringify({ reason: 'Forbidden', message }));
  });
  const error = await failOf(client);
  expect(error).toBeInstanceOf(KubernetesError);
  expect(error).toMatchObject({
    status: 403,
    reason: 'Forbidden',
    message: message.slice(0, 2_000),
  });
});

it('reads only the start of an error that does not end', async () => {
  const client = await openClient((response) => {
    response.writeHead(500).write('x'.repeat(100_000));
  });
  expect(await failOf(client)).toMatchObject({
    status: 500,
    message: 'the API server answered 500',
  });
});
