// The endpoints that the session's key may see.
import { Empty } from '../parts/empty.tsx';
import { Problem } from '../parts/problem.tsx';
import { platform } from '../platform/calls.ts';
import { usePolled } from '../platform/polling.ts';

export function Page() {
  const { data, error, reload } = usePolled({
    key: 'endpoints',
    load: (signal) => platform.endpoints.page({ limit: 1_000, signal }),
    everyMs: 5_000,
  });
  return (
    <>
      <h1>Overview</h1>
      {error && <Problem error={error} onRetry={reload} />}
      {data && data.items.length === 0 && (
        <Empty title="No endpoints yet" command="millrace deploy handler.ts">
          An endpoint is a queue with workers. Deploy a handler to create one:
        </Empty>
      )}
      {data && data.items.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th scope="col">Endpoint</th>
                <th scope="col">Type</th>
              </tr>
            </thead>
            <tbody>
              {data.items.map(({ id, name, type }) => (
                <tr key={id}>
                  <th scope="row">{name}</th>
                  <td>{type === 'QUEUE' ? 'Queue' : 'Load balancer'}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
