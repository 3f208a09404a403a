// The templates of pods and workers: list, create, change and delete.
import type { TemplateRecord } from '../../../../src/client.ts';
import { RESOURCES } from '../../../../src/wire/routes/routes.ts';
import { CreateButton } from '../../parts/forms/create-button.tsx';
import { useOpenedForm } from '../../parts/forms/opened-form.ts';
import { RecordForm } from '../../parts/forms/record-form.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { List } from '../../parts/list/list.tsx';
import { RecordName } from '../../parts/list/record-name.tsx';
import { RowActions } from '../../parts/list/row-actions.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';

const COLUMNS = [
  { name: 'Template' },
  { name: 'Image' },
  { name: 'Command' },
  { name: 'Version', isNumber: true },
  { name: 'Created' },
  { name: 'Actions', isHidden: true },
];

const { path } = RESOURCES.templates;

export function Page() {
  const polled = usePolled({
    key: 'templates',
    load: async (signal) => (await platform.templates.page({ limit: 1_000, signal })).items,
    everyMs: 10_000,
  });
  const { reload } = polled;
  const { form, open, opened } = useOpenedForm<TemplateRecord>(reload);
  return (
    <>
      <PageHead title="Templates">
        {may('endpoints:write') && (
          <CreateButton
            label="Create a template"
            isOpen={opened === 'new'}
            onOpen={() => open('new')}
          />
        )}
      </PageHead>
      {opened === 'new' && (
        <RecordForm
          label="Create a template"
          method="POST"
          path={path}
          initial={{ name: 'my-model', image: 'registry.example.com/my-model:1', env: {} }}
          {...form}
        />
      )}
      {opened && opened !== 'new' && (
        <RecordForm
          key={opened.id}
          label={`Change the template ${opened.name}`}
          method="PATCH"
          path={`${path}/${opened.id}`}
          documentedPath={`${path}/{template}`}
          initial={pickChangeable(opened)}
          {...form}
        />
      )}
      <List
        label="Templates"
        columns={COLUMNS}
        polled={polled}
        row={(template) => (
          <Row
            key={template.id}
            template={template}
            reload={reload}
            onEdit={() => open(template)}
          />
        )}
        empty={
          <Empty title="No templates yet" command="millrace templates create --help">
            A template has the image and the settings of pods and workers. Create one:
          </Empty>
        }
      />
    </>
  );
}

/** What an update may have. */
function pickChangeable(template: TemplateRecord): object {
  const { createdAt: _created, id: _id, version: _version, ...changeable } = template;
  return changeable;
}

interface RowProps {
  template: TemplateRecord;
  reload: () => void;
  onEdit: () => void;
}

function Row({ onEdit, reload, template }: RowProps) {
  const { args, createdAt, handler, id, image, name, version } = template;
  const remove = async () => {
    await platform.templates.delete(id);
    reload();
  };
  return (
    <tr>
      <RecordName id={id} name={name} />
      <td class="mono">{image}</td>
      <td class="mono">{handler ?? (args || '–')}</td>
      <td class="number">{version}</td>
      <td class="nowrap">
        <Time at={createdAt} />
      </td>
      <RowActions
        {...{ kind: 'template', name, onEdit }}
        isAllowed={may('endpoints:write')}
        remove={remove}
      >
        The platform refuses this while an endpoint uses the template.
      </RowActions>
    </tr>
  );
}
