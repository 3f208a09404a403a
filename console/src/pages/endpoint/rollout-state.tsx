// Shows the progress of the last deployment of a version, or why it failed.
import type { EndpointRecord } from '../../../../src/client.ts';
import { Badge, type Tone } from '../../parts/badge.tsx';
import { Block } from '../../parts/block.tsx';
import { Time } from '../../parts/time.tsx';

type Rollout = NonNullable<EndpointRecord['rollout']>;

const STATES: Readonly<Record<Rollout['state'], { text: string; tone: Tone }>> = {
  CHECKING: { text: 'Checking: one worker has to load it', tone: 'busy' },
  ROLLING: { text: 'Rolling: the other workers are being replaced', tone: 'busy' },
  DONE: { text: 'Done', tone: 'good' },
  FAILED: { text: 'Failed', tone: 'bad' },
};

export function RolloutState({ rollout }: { rollout: Rollout }) {
  const { endedAt, from, reason, startedAt, state, version, workersReady, workersTotal } = rollout;
  return (
    <section class="note">
      <h2>
        Rollout of version {version} <Badge {...STATES[state]} />
      </h2>
      <p class="muted">
        Started <Time at={startedAt} />
        {endedAt === null ? (
          `; ${workersReady} of ${workersTotal} workers run it.`
        ) : (
          <>
            , ended <Time at={endedAt} />.
          </>
        )}
      </p>
      {state === 'FAILED' && (
        <p>{from === null ? 'No version runs.' : `Version ${from} keeps running.`}</p>
      )}
      {reason && <Block text={reason} label="Reason" />}
    </section>
  );
}
