// The API keys: list, create, rotate and revoke. A new key is shown once.
import { useState } from 'preact/hooks';
import type { IssuedKeyRecord, KeyRecord } from '../../../../src/client.ts';
import { Copy } from '../../parts/copy.tsx';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { CreateButton } from '../../parts/forms/create-button.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { List } from '../../parts/list/list.tsx';
import { RecordName } from '../../parts/list/record-cells.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { useEndpointNames } from '../../platform/endpoint-names.ts';
import { usePolled } from '../../platform/polling.ts';
import { may, sessionState } from '../../platform/session.ts';
import { KeyForm } from './key-form.tsx';

const COLUMNS = [
  { name: 'Name' },
  { name: 'Scopes' },
  { name: 'User' },
  { name: 'Created' },
  { name: 'Expires' },
  { name: 'Actions', isHidden: true },
];

export function Page() {
  const [issued, setIssued] = useState<IssuedKeyRecord>();
  const [isOpen, setOpen] = useState(false);
  const polled = usePolled({
    key: 'keys',
    load: async (signal) => (await platform.keys.page({ limit: 1_000, signal })).items,
    everyMs: 10_000,
  });
  const { reload } = polled;
  const show = (key: IssuedKeyRecord) => {
    setIssued(key);
    setOpen(false);
    reload();
  };
  return (
    <>
      <PageHead title="Keys">
        {may('keys:write') && (
          <CreateButton label="Create a key" isOpen={isOpen} onOpen={() => setOpen(true)} />
        )}
      </PageHead>
      {issued && <NewKey issued={issued} onDone={() => setIssued(undefined)} />}
      {isOpen && <KeyForm onCreated={show} onCancel={() => setOpen(false)} />}
      <List
        label="Keys"
        columns={COLUMNS}
        polled={polled}
        row={(key) => <Row key={key.id} record={key} onIssued={show} reload={reload} />}
        empty={<Empty title="No keys yet" command="millrace keys create --help" />}
      />
    </>
  );
}

function NewKey({ issued, onDone }: { issued: IssuedKeyRecord; onDone: () => void }) {
  return (
    <section class="note" role="status">
      <h2>The key {issued.name}</h2>
      <p>Copy it now: the platform stores only its hash and cannot show it again.</p>
      <p>
        <code class="secret">{issued.key}</code>
      </p>
      <Copy text={issued.key} label="Copy the key" />
      <button type="button" onClick={onDone}>
        Done
      </button>
    </section>
  );
}

interface RowProps {
  record: KeyRecord;
  onIssued: (key: IssuedKeyRecord) => void;
  reload: () => void;
}

function Row({ onIssued, record, reload }: RowProps) {
  const { createdAt, expiresAt, id, name, scopes, userId } = record;
  const nameOf = useEndpointNames();
  const state = sessionState.read();
  const isOwn = state.kind === 'open' && state.session.key?.id === id;
  const rotate = async () => onIssued(await platform.keys.rotate(id));
  const revoke = async () => {
    await platform.keys.delete(id);
    reload();
  };
  return (
    <tr>
      <RecordName id={id} name={name} />
      <td>
        <ul>
          {scopes.map((scope) => (
            <li key={scope} title={scope}>
              <code>{scope.replace(/(?<=:)ep_.+/, nameOf)}</code>
            </li>
          ))}
        </ul>
      </td>
      <td>{userId}</td>
      <td class="nowrap">
        <Time at={createdAt} />
      </td>
      <td class="nowrap">{expiresAt ? <Time at={expiresAt} /> : 'never'}</td>
      <td class="number">
        {may('keys:write') && (
          <span class="row-actions">
            <Confirm label="Rotate" question={`Replace the key ${name}?`} act={rotate}>
              <p>A new key with the same scopes replaces it. The old key ends at once.</p>
            </Confirm>
            <Confirm label="Revoke" question={`Revoke the key ${name}?`} isDangerous act={revoke}>
              <p>
                Programs that use it get 401 at once.{' '}
                {isOwn && 'You are signed in with this key: your session ends too.'}
              </p>
            </Confirm>
          </span>
        )}
      </td>
    </tr>
  );
}
