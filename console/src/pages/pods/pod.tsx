// One pod: its state, what can be done with it, and the end of its log.
import { useState } from 'preact/hooks';
import type { EngineCapabilitiesRecord, PodAction, PodRecord } from '../../../../src/client.ts';
import { Badge } from '../../parts/badge.tsx';
import { Figures } from '../../parts/figures/figures.tsx';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { LogFrame } from '../../parts/log-frame.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { findPodTone, sayDevice, sayPodStatus, sayUsd } from '../../parts/pod-status.ts';
import { sayDuration } from '../../parts/time.tsx';
import { TimelineList } from '../../parts/timeline.tsx';
import { platform } from '../../platform/calls.ts';
import { useEndpointNames } from '../../platform/endpoint-names.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';
import { hrefOf } from '../../routing/location.ts';
import type { PageProps } from '../../routing/routes.ts';
import { LoadProblem, pathOf } from '../endpoint/frame.tsx';
import { listWorkerEvents } from './worker-events.ts';

export function Page({ parameters: { pod: id = '' } }: PageProps) {
  const polled = usePolled({
    key: `pod ${id}`,
    load: (signal) => platform.pods.get(id, { signal }),
    everyMs: 2_000,
    live: liveFrom([TOPICS.pod(id)], (pod) => pod),
  });
  const { data: pod, reload } = polled;
  return (
    <>
      <PageHead
        title={pod?.name ?? id}
        id={pod?.id}
        crumbs={[{ name: 'Pods', path: '/pods' }]}
        badge={pod && <Badge text={sayPodStatus(pod)} tone={findPodTone(pod)} />}
      >
        {pod && may('pods:write') && <Actions pod={pod} reload={reload} />}
      </PageHead>
      <LoadProblem polled={polled} />
      {pod && <State pod={pod} />}
      {pod?.timeline && (
        <section>
          <h2>Timeline</h2>
          <TimelineList events={listWorkerEvents(pod.timeline)} />
        </section>
      )}
      {pod && pod.status !== 'TERMINATED' && <Log id={id} isOver={pod.status === 'EXITED'} />}
    </>
  );
}

const TEXTS: Readonly<Record<PodAction, { label: string; note: string }>> = {
  start: { label: 'Start', note: 'The container starts again.' },
  stop: { label: 'Stop', note: 'The container stops.' },
  restart: { label: 'Restart', note: 'The container is replaced: its disk is erased.' },
  terminate: { label: 'Terminate', note: 'The container and its disk are removed.' },
};

/** What happens to disk and GPUs depends on the engine. */
function sayEffect(action: PodAction, pod: PodRecord, engine: EngineCapabilitiesRecord | null) {
  const { note } = TEXTS[action];
  if (!engine || (action !== 'stop' && action !== 'start')) return note;
  const isKept = engine.disk.keptOverStop;
  if (action === 'start') return isKept ? 'The container starts again with its disk.' : note;
  const disk = isKept ? 'Its disk is kept.' : 'Its disk is removed; mounts are kept.';
  const which = engine.gpusAtStart ? 'any free GPUs of its type' : 'the same GPUs';
  return `${note} ${disk}${pod.gpu ? ` Its next start needs ${which}.` : ''}`;
}

function Actions({ pod, reload }: { pod: PodRecord; reload: () => void }) {
  const { data: engine = null } = usePolled({
    key: 'engine',
    load: async (signal) => {
      if (!may('endpoints:read')) return null;
      const { items } = await platform.catalog.dataCenters.page({ limit: 1, signal });
      return items[0]?.capabilities ?? null;
    },
    everyMs: null,
  });
  const act = async (action: PodAction) => {
    await platform.pods[action](pod.id);
    reload();
  };
  return (
    <>
      {pod.actions.map((action) => (
        <Confirm
          key={action}
          label={TEXTS[action].label}
          question={`${TEXTS[action].label} the pod ${pod.name}?`}
          isDangerous={action === 'terminate'}
          act={() => act(action)}
        >
          <p>
            {sayEffect(action, pod, engine)}
            {pod.endpointId && ' It is a worker: the platform may start another one in its place.'}
          </p>
        </Confirm>
      ))}
    </>
  );
}

function State({ pod }: { pod: PodRecord }) {
  const { cost, disk, endpointId, env, image, ports, reason, runtime } = pod;
  const names = Object.keys(env);
  const nameOf = useEndpointNames();
  return (
    <>
      {reason && <p class="note">{reason}</p>}
      <Figures
        figures={[
          { name: 'Device', value: sayDevice(pod) },
          { name: 'Per hour', value: sayUsd(cost) },
          ...(runtime?.uptime === undefined
            ? []
            : [{ name: 'Up for', value: sayDuration(runtime.uptime * 1_000) }]),
          ...(runtime?.cpu ? [{ name: 'CPU', value: `${runtime.cpu.util} %` }] : []),
          ...(runtime?.memory ? [{ name: 'Memory', value: `${runtime.memory.util} %` }] : []),
          ...(runtime?.gpus ?? []).map(({ memoryUtil, util }, index) => ({
            name: `GPU ${index}`,
            value: `${util} %`,
            note: `memory ${memoryUtil} %`,
          })),
        ]}
      />
      <dl class="facts">
        <dt>Image</dt>
        <dd class="mono">{image}</dd>
        {endpointId && (
          <>
            <dt>Endpoint</dt>
            <dd>
              <a href={hrefOf(pathOf(endpointId))}>{nameOf(endpointId)}</a>
            </dd>
          </>
        )}
        <dt>Disk</dt>
        <dd>{disk} GB</dd>
        <dt>Ports</dt>
        <dd>{ports.join(', ') || '–'}</dd>
        <dt>Variables</dt>
        <dd>
          <span class="mono">{names.join(', ') || '–'}</span>
          {names.length > 0 && !may('pods:write') && (
            <span class="muted"> (values hidden: your key lacks pods:write)</span>
          )}
        </dd>
      </dl>
    </>
  );
}

const LOG_BYTES = 65_536;

function Log({ id, isOver }: { id: string; isOver: boolean }) {
  const [paused, setPaused] = useState<string>();
  const { data, error } = usePolled({
    key: `pod log ${id}`,
    load: (signal) => platform.pods.log(id, { maxBytes: LOG_BYTES, signal }),
    everyMs: 2_000,
    live: liveFrom([TOPICS.podLog(id)], ({ log }) => log),
  });
  const shown = paused ?? data;
  return (
    <section>
      <h2>Log</h2>
      {error && data === undefined && <p class="muted">{error.message}</p>}
      {shown === '' && <p class="muted">The container has printed nothing.</p>}
      {shown && (
        <LogFrame
          label="Log"
          isPaused={paused !== undefined}
          onPause={(isPaused) => setPaused(isPaused ? shown : undefined)}
          isOver={isOver}
        >
          <pre>{shown}</pre>
        </LogFrame>
      )}
    </section>
  );
}
