// What the scaler decided last, in its own words.
import { Table } from '../../parts/list/table.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';

const COLUMNS = [
  { name: 'When' },
  { name: 'Reason' },
  { name: 'Queued', isNumber: true },
  { name: 'Running', isNumber: true },
  { name: 'Workers', isNumber: true },
  { name: 'Wanted', isNumber: true },
];

const SHOWN = 20;

export function Decisions({ id }: { id: string }) {
  const { data } = usePolled({
    key: `decisions ${id}`,
    load: async (signal) =>
      (await platform.endpoints.decisions(id).page({ limit: SHOWN, signal })).items,
    everyMs: 5_000,
    live: liveFrom([TOPICS.decisions(id)], ({ decisions }) => decisions),
  });
  if (!data) return null;
  return (
    <section>
      <h2>Scaling decisions</h2>
      {data.length === 0 ? (
        <p class="muted">No scaling decisions yet.</p>
      ) : (
        <Table label="Scaling decisions" columns={COLUMNS}>
          {data.map(({ at, input, reason, want }) => (
            <tr key={at}>
              <td class="nowrap">
                <Time at={at} as="clock" />
              </td>
              <td>{reason}</td>
              <td class="number">{input.load.waiting}</td>
              <td class="number">{input.load.running}</td>
              <td class="number">{input.workers.length}</td>
              <td class="number">{want}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}
