// The nodes that serve the platform: what each owns, its database, and what pods hold of its machine.
import { Fragment } from 'preact';
import type { NodeRecord } from '../../../../src/client.ts';
import { Badge, type Tone } from '../../parts/badge.tsx';
import { sayBytes } from '../../parts/bytes.ts';
import { Meter } from '../../parts/figures/meter.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { hrefOf } from '../../routing/location.ts';
import { LoadProblem } from '../endpoint/frame.tsx';

export function Page() {
  const polled = usePolled({
    key: 'nodes',
    load: async (signal) => (await platform.nodes.list({ signal })).nodes,
    everyMs: 5_000,
  });
  const { data } = polled;
  return (
    <>
      <PageHead title="Nodes" />
      <LoadProblem polled={polled} />
      {data?.map((node) => (
        <Node key={node.id} node={node} />
      ))}
      {data?.length === 1 && data[0]?.url === null && (
        <Empty title="The platform has one node" command="millrace serve --node-url URL">
          Several nodes can share a Postgres database. Start each with its own URL:
        </Empty>
      )}
    </>
  );
}

const STATES: Readonly<Record<NodeRecord['state'], { text: string; tone: Tone }>> = {
  serving: { text: 'Serving', tone: 'good' },
  leaving: { text: 'Leaving: it hands its shards over', tone: 'warn' },
  gone: { text: 'Gone: its lease has ended', tone: 'bad' },
};

function Node({ node }: { node: NodeRecord }) {
  const { endpoints, id, isLeader, machine, name, self, shards, state, url } = node;
  return (
    <section class="note" aria-label={`Node ${name ?? id}`}>
      <h2>
        {name ?? id} <Badge {...STATES[state]} />
        {isLeader && url !== null && <Badge text="Leads" tone="plain" />}
      </h2>
      {self?.store.warnings.map((warning) => (
        <p key={warning} class="field-problem">
          {warning}
        </p>
      ))}
      <dl class="facts">
        <dt>ID</dt>
        <dd class="mono">{id}</dd>
        {url !== null && (
          <>
            <dt>URL</dt>
            <dd class="mono">{url}</dd>
            <dt>Shards</dt>
            <dd>{shards.join(', ') || 'none'}</dd>
          </>
        )}
        <dt>Endpoints</dt>
        <dd>{endpoints}</dd>
        {self ? <Self self={self} /> : <NoAnswer state={state} />}
        {machine ? <Machine machine={machine} /> : null}
      </dl>
    </section>
  );
}

function NoAnswer({ state }: Pick<NodeRecord, 'state'>) {
  return (
    <>
      <dt>Version</dt>
      <dd>{state === 'gone' ? '–' : 'The node does not answer.'}</dd>
    </>
  );
}

function Self({ self }: { self: NonNullable<NodeRecord['self']> }) {
  const { startedAt, store, version } = self;
  const { databaseBytes, freeBytes } = store;
  return (
    <>
      <dt>Version</dt>
      <dd>
        {version}, started <Time at={startedAt} />
      </dd>
      {databaseBytes !== null && (
        <>
          <dt>Database</dt>
          <dd>
            {sayBytes(databaseBytes)}
            {freeBytes !== null && `; ${sayBytes(freeBytes)} of the disk are free`}
          </dd>
        </>
      )}
    </>
  );
}

const SHARES = [
  { key: 'memoryGb', name: 'Memory', unit: 'GB' },
  { key: 'vcpus', name: 'vCPUs', unit: '' },
  { key: 'diskGb', name: 'Disk', unit: 'GB' },
] as const;

function Machine({ machine }: { machine: NonNullable<NodeRecord['machine']> }) {
  const { engine, gpus, pods } = machine;
  return (
    <>
      <dt>Engine</dt>
      <dd>
        {engine}, {pods} {pods === 1 ? 'pod' : 'pods'}
      </dd>
      {SHARES.map(({ key, name, unit }) => (
        <Fragment key={key}>
          <dt>{name}</dt>
          <dd>
            <Meter label={`${name} that pods hold`} {...machine[key]} unit={unit} />
          </dd>
        </Fragment>
      ))}
      <dt>GPUs</dt>
      <dd>
        {gpus.length === 0 && 'none'}
        <ul>
          {gpus.map(({ memoryGb, name, podId, uuid }) => (
            <li key={uuid} title={uuid}>
              {name}, {memoryGb} GB:{' '}
              {podId === null ? 'free' : <a href={hrefOf(`/pods/${podId}`)}>{podId}</a>}
            </li>
          ))}
        </ul>
      </dd>
    </>
  );
}
