// What the user of the session's key may use, and uses now.
import type { LimitsRecord } from '../../../../src/client.ts';
import { Meter } from '../../parts/figures/meter.tsx';
import { Table } from '../../parts/list/table.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { LoadProblem } from '../endpoint/frame.tsx';

const RATE_COLUMNS = [{ name: 'Window' }, { name: 'Calls' }, { name: 'Ends' }];
const QUOTA_COLUMNS = [{ name: 'Quota' }, { name: 'Used' }, { name: 'What it bounds' }];

/** By the names of `serve --quota`. */
const TEXTS: Readonly<Record<string, string>> = {
  endpoints: 'Endpoints',
  templates: 'Templates',
  keys: 'Keys that have not expired',
  pods: 'Pods that have not ended; worker pods do not count',
  networkVolumes: 'Network volumes',
  registries: 'Logins of registries',
  budgets: 'Budgets',
  schedules: 'Schedules',
  sharedLimits: 'Shared limits',
  workersMax: 'Maximum number of workers of one endpoint',
  recordKb: 'KB of JSON of one endpoint, template or pod',
  versions: 'Versions of the handler of one endpoint; an upload replaces the oldest one',
  versionMb: 'MB of the archives of all versions',
};

export function Page() {
  const polled = usePolled({
    key: 'limits',
    load: (signal) => platform.limits.get({ signal }),
    everyMs: 5_000,
  });
  const { data } = polled;
  return (
    <>
      <PageHead title="Limits" />
      <LoadProblem polled={polled} />
      {data && (
        <p class="muted">
          All keys of the user <code>{data.userId}</code> share these limits. The operator sets them
          with options of <code>millrace serve</code>.
        </p>
      )}
      {data && <Rates rates={data.rates} />}
      {data && <Quotas quotas={data.quotas} />}
    </>
  );
}

function Rates({ rates }: Pick<LimitsRecord, 'rates'>) {
  return (
    <section>
      <h2>Calls</h2>
      {rates.length === 0 ? (
        <p class="muted">
          Calls are not limited. <code>millrace serve --rate-limit minute=6000</code> limits them.
        </p>
      ) : (
        <Table label="Calls" columns={RATE_COLUMNS}>
          {rates.map(({ endsAt, limit, used, window }) => (
            <tr key={window}>
              <th scope="row">{window}</th>
              <td>
                <Meter label={`Calls of this ${window}`} used={used} limit={limit} />
              </td>
              <td class="nowrap">
                <Time at={endsAt} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

function Quotas({ quotas }: Pick<LimitsRecord, 'quotas'>) {
  return (
    <section>
      <h2>Quotas</h2>
      <Table label="Quotas" columns={QUOTA_COLUMNS}>
        {quotas.map(({ limit, name, of, used }) => (
          <tr key={name}>
            <th scope="row" class="mono">
              {name}
            </th>
            <td>
              {used === null ? (
                <>
                  {limit.toLocaleString()} for each {of}
                </>
              ) : (
                <Meter label={`Quota ${name}`} used={used} limit={limit} />
              )}
            </td>
            <td>{TEXTS[name] ?? '–'}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
