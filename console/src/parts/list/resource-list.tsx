// The records of a resource: list, create, change and delete. A page, or a section of one.
import { type ComponentChildren, Fragment } from 'preact';
import type { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { CreateButton } from '../forms/create-button.tsx';
import { useOpenedForm } from '../forms/opened-form.ts';
import { PageHead } from '../page-head.tsx';
import { List } from './list.tsx';
import { RecordName } from './record-cells.tsx';
import { RowActions } from './row-actions.tsx';
import type { Column } from './table.tsx';

interface Listed {
  id: string;
  name: string;
  /** It comes from the operator's catalog file. */
  declared?: boolean;
}

interface FormProps<Item> {
  opened: Item | 'new';
  onDone: () => void;
  onBack: () => void;
}

interface ResourceListProps<Item extends Listed> {
  title: string;
  /** One record, in buttons and questions: `template`. */
  kind: string;
  resource: Pick<typeof platform.templates, 'delete'> & {
    page(options: { limit: number; signal: AbortSignal }): Promise<{ items: readonly Item[] }>;
  };
  everyMs?: number;
  /** Without a record: whether the signed-in user may create one. */
  mayChange: (item?: Item) => boolean;
  form: (props: FormProps<Item>) => ComponentChildren;
  /** Between the name and the actions. */
  columns: readonly Column[];
  cells: (item: Item, reload: () => void) => ComponentChildren;
  /** What a person should know before they delete the record. */
  deletion: (item: Item) => string;
  /** What else is lost, at the end of the question: `with its content`. */
  lost?: string;
  empty: ComponentChildren;
  isSection?: boolean;
}

export function ResourceList<Item extends Listed>(props: ResourceListProps<Item>) {
  const { cells, columns, deletion, empty, everyMs = 10_000, form, isSection } = props;
  const { kind, lost, mayChange, resource, title } = props;
  const polled = usePolled({
    key: title,
    load: async (signal) => (await resource.page({ limit: 1_000, signal })).items,
    everyMs,
  });
  const { reload } = polled;
  const { form: ends, open, opened } = useOpenedForm<Item>(reload);
  const create = mayChange() && (
    <CreateButton label={`Create a ${kind}`} isOpen={opened === 'new'} onOpen={() => open('new')} />
  );
  const content = (
    <>
      {opened && (
        <Fragment key={opened === 'new' ? opened : opened.id}>{form({ opened, ...ends })}</Fragment>
      )}
      <List
        label={title}
        columns={[
          { name: `${kind[0]?.toUpperCase()}${kind.slice(1)}` },
          ...columns,
          { name: 'Actions', isHidden: true },
        ]}
        polled={polled}
        row={(item) => (
          <tr key={item.id}>
            <RecordName id={item.id} name={item.name} />
            {cells(item, reload)}
            <RowActions
              {...{ kind, lost, name: item.name, isFixed: item.declared }}
              isAllowed={mayChange(item)}
              onEdit={() => open(item)}
              remove={async () => {
                await resource.delete(item.id);
                reload();
              }}
            >
              {deletion(item)}
            </RowActions>
          </tr>
        )}
        empty={empty}
      />
    </>
  );
  if (!isSection) {
    return (
      <>
        <PageHead title={title}>{create}</PageHead>
        {content}
      </>
    );
  }
  return (
    <section aria-label={title}>
      <div class="chart-head">
        <h2>{title}</h2>
        {create}
      </div>
      {content}
    </section>
  );
}
