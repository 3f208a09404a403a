// Pauses and resumes an endpoint; lists its paused groups.
import { callOf } from '../../../../src/client/api-caller.ts';
import type { EndpointHealth, Pause } from '../../../../src/client.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { Table } from '../../parts/list/table.tsx';
import { Time } from '../../parts/time.tsx';
import { caller } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';

const EVERY_MS = 3_000;

async function change(
  route: typeof JOB_ROUTES.pauseQueue | typeof JOB_ROUTES.resumeQueue,
  endpoint: string,
  body: object,
): Promise<void> {
  await caller.answer({ ...callOf<string>(route, { endpoint }), body });
}

export function PauseAction({ health, id }: { id: string; health: EndpointHealth }) {
  if (!may('jobs:write', id)) return null;
  if (health.paused) {
    const resume = () => change(JOB_ROUTES.resumeQueue, id, {});
    return (
      <Confirm label="Resume" question="Resume the endpoint?" act={resume}>
        <p>Workers get its jobs again.</p>
      </Confirm>
    );
  }
  return (
    <Confirm
      label="Pause"
      question="Pause the endpoint?"
      act={() => change(JOB_ROUTES.pauseQueue, id, {})}
    >
      <p>The endpoint accepts jobs, but starts none until you resume it. Running jobs continue.</p>
    </Confirm>
  );
}

const COLUMNS = [
  { name: 'Paused group' },
  { name: 'Since' },
  { name: 'Until' },
  { name: 'Reason' },
  { name: 'Actions', isHidden: true },
];

export function PausedGroups({ id }: { id: string }) {
  const { data = [], reload } = usePolled({
    key: `pauses ${id}`,
    load: async (signal) => {
      const call = callOf(JOB_ROUTES.getPauses, { endpoint: id });
      return (await caller.json<{ pauses: Pause[] }>({ ...call, signal })).pauses;
    },
    everyMs: EVERY_MS,
  });
  const groups = data.flatMap((pause) =>
    pause.group === null ? [] : { ...pause, group: pause.group },
  );
  return (
    <Table label="Paused groups" columns={COLUMNS}>
      {groups.map(({ group, reason, since, until }) => (
        <tr key={group}>
          <th scope="row">{group === '' ? 'Jobs without a group' : group}</th>
          <td>
            <Time at={since} />
          </td>
          <td>{until === null ? '–' : <Time at={until} />}</td>
          <td>{reason ?? '–'}</td>
          <td>
            {may('jobs:write', id) && (
              <Confirm
                label="Resume"
                question="Resume the group?"
                act={async () => {
                  await change(JOB_ROUTES.resumeQueue, id, { group });
                  reload();
                }}
              />
            )}
          </td>
        </tr>
      ))}
    </Table>
  );
}
