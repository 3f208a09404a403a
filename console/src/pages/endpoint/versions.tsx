// The versions of an endpoint's handler, the state of the rollout, and the way back to an earlier version.
import type { EndpointRecord, VersionRecord } from '../../../../src/client.ts';
import { Badge } from '../../parts/badge.tsx';
import { sayBytes } from '../../parts/bytes.ts';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { Table } from '../../parts/list/table.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';
import type { PageProps } from '../../routing/routes.ts';
import { EndpointFrame, LoadProblem, useEndpoint } from './frame.tsx';
import { RolloutState } from './rollout-state.tsx';

const COLUMNS = [
  { name: 'Version', isNumber: true },
  { name: 'Message' },
  { name: 'Handler' },
  { name: 'Size', isNumber: true },
  { name: 'Uploaded' },
  { name: 'Actions', isHidden: true },
];

export function Page({ parameters: { endpoint: id = '' } }: PageProps) {
  const record = useEndpoint(id);
  const versions = usePolled({
    key: `versions ${id}`,
    load: async (signal) =>
      (await platform.endpoints.versions(id).page({ limit: 100, signal })).items,
    everyMs: 5_000,
    live: liveFrom([TOPICS.versions(id)], ({ versions }) => versions),
  });
  const endpoint = record.data ?? undefined;
  const items = versions.data ?? [];
  const reload = () => {
    record.reload();
    versions.reload();
  };
  return (
    <EndpointFrame id={id} tab="versions" endpoint={endpoint}>
      <LoadProblem polled={versions} />
      {endpoint?.rollout && <RolloutState rollout={endpoint.rollout} />}
      {versions.data && items.length === 0 && (
        <Empty
          title="No versions yet"
          command={`millrace deploy handler.ts --name ${endpoint?.name ?? id}`}
        >
          A version is a handler with its files. Upload one:
        </Empty>
      )}
      {items.length > 0 && endpoint && (
        <Table label="Versions" columns={COLUMNS}>
          {items.map((version) => (
            <Row key={version.version} version={version} endpoint={endpoint} reload={reload} />
          ))}
        </Table>
      )}
    </EndpointFrame>
  );
}

interface RowProps {
  version: VersionRecord;
  endpoint: EndpointRecord;
  reload: () => void;
}

function Row({ endpoint, reload, version }: RowProps) {
  const { bytes, createdAt, entry, files, message, version: number } = version;
  const isRunning = endpoint.source === 'VERSION' && endpoint.version === number;
  const label = number < (endpoint.version ?? 0) ? 'Roll back' : 'Deploy';
  const deploy = async () => {
    await platform.endpoints.versions(endpoint.id).deploy(number);
    reload();
  };
  return (
    <tr>
      <td class="number">{number}</td>
      <td>{message ?? <span class="muted">–</span>}</td>
      <td class="mono">{entry}</td>
      <td class="number" title={`${files} files`}>
        {sayBytes(bytes)}
      </td>
      <td class="nowrap">
        <Time at={createdAt} />
      </td>
      <td class="number">
        {isRunning && <Badge text="Running" tone="good" />}
        {!isRunning && may('endpoints:write', endpoint.id) && (
          <Confirm
            label={label}
            question={`${label === 'Deploy' ? 'Deploy' : 'Roll back to'} version ${number}?`}
            act={deploy}
          >
            <p>
              One worker starts with version {number}. If it loads the handler, the platform
              replaces the other workers. Otherwise the running version stays.
            </p>
          </Confirm>
        )}
      </td>
    </tr>
  );
}
