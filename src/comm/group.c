// SPDX-License-Identifier: MIT
// Groups: who is in them, how data is cut over them, and how the members agree on shared memory for a new one.
//
// A group uses the same slot number (an index into rings, channels, stages) on all its members; disjoint
// groups may use equal numbers. The first rank listed leads: it reserves a slot free on all members (one bit
// per rank and slot, taken with atomic OR and given back if another leader was faster), draws an epoch and
// writes a mail to every member. A member looks in its own mails for one from its leader with the same hash
// of members and name, the oldest first, so equal groups created twice pair in order. The member that leaves
// last frees the slot everywhere: until then others may still read the records of a rank that has left.
#include "algorithm.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tr_slice(size_t n, int size, int index, size_t grain, size_t *start, size_t *count) {
  size_t g = grain ? grain : 1, p = (size_t)size, i = (size_t)index;
  size_t runs = n / g + (n % g != 0), each = runs / p, more = runs % p;
  size_t first = i * each + (i < more ? i : more), last = first + each + (i < more);
  size_t from = first < runs ? first * g : n, to = last < runs ? last * g : n;
  *start = from;
  *count = to - from;
}

int tr_group_rank(const tr_group *group) { return group->index; }
int tr_group_size(const tr_group *group) { return group->size; }
const char *tr_group_name(const tr_group *group) { return group->name; }
int tr_group_member(const tr_group *group, int index) { return group->ranks[index]; }

int tr_group_on_one_host(const tr_group *group) {
  for (int i = 1; i < group->size; i++)
    if (tr_comm_host(group->comm, group->ranks[i]) != tr_comm_host(group->comm, group->ranks[0])) return 0;
  return 1;
}

// ---- agreeing on a slot -------------------------------------------------------------------------

static uint64_t key_of(const tr_group *g, const char *name) {
  uint64_t parts[2] = {tr_hash_bytes(g->ranks, (size_t)g->size * sizeof *g->ranks),
                       tr_hash_bytes(name, strlen(name))};
  return tr_hash_bytes(parts, sizeof parts);
}

// Take `bit` on every member, or on none.
static int take_bit(tr_group *g, uint64_t bit) {
  for (int i = 0; i < g->size; i++) {
    if (!(atomic_fetch_or(&g->comm->job->page[g->ranks[i]].slots, bit) & bit)) continue;
    while (i-- > 0) atomic_fetch_and(&g->comm->job->page[g->ranks[i]].slots, ~bit);
    return 0;
  }
  return 1;
}

static tr_status reserve_slot(tr_group *g) {
  for (;;) {
    uint64_t used = 0;
    for (int i = 0; i < g->size; i++) used |= atomic_load(&g->comm->job->page[g->ranks[i]].slots);
    if (used == UINT64_MAX)
      return tr_error(TR_ERR_USAGE, "group '%s' would be one too many: its ranks are in up to %d groups already",
                      g->name, TR__SLOTS);
    g->slot = __builtin_ctzll(~used);
    if (take_bit(g, 1ull << g->slot)) return TR_OK;
  }
}

static tr_status lead(tr_group *g, uint64_t key) {
  TR_TRY(reserve_slot(g));
  tr__job *job = g->comm->job;
  g->epoch = atomic_fetch_add(&job->control->epoch, 1u) + 1u;
  atomic_store(&tr__mail_of(job, g->comm->rank, g->slot)->left, 0u);
  for (int i = 0; i < g->size; i++) {
    tr__mail *mail = tr__mail_of(job, g->ranks[i], g->slot);
    mail->leader = g->comm->rank;
    mail->key = key;
    atomic_store_explicit(&mail->epoch, g->epoch, memory_order_release);
  }
  atomic_store(&tr__mail_of(job, g->comm->rank, g->slot)->joined, g->epoch);
  return TR_OK;
}

// The oldest mail from our leader with this key that was not answered yet, or NULL.
static tr__mail *oldest_mail(tr_group *g, uint64_t key) {
  tr__mail *oldest = NULL;
  for (int slot = 1; slot < TR__SLOTS; slot++) {
    tr__mail *mail = tr__mail_of(g->comm->job, g->comm->rank, slot);
    uint32_t epoch = atomic_load_explicit(&mail->epoch, memory_order_acquire);
    if (epoch == atomic_load_explicit(&mail->joined, memory_order_relaxed)) continue; // none, or answered
    if (mail->leader != g->ranks[0] || mail->key != key) continue;
    if (oldest && tr__ahead(epoch, g->epoch) > 0) continue;
    oldest = mail;
    g->slot = slot;
    g->epoch = epoch;
  }
  return oldest;
}

// While we looked, the leader may have written an older mail into a slot already passed and a younger one
// into a slot still ahead. Whoever sees the younger sees the older from then on, so a second look decides.
static int find_mail(tr_group *g, uint64_t key) {
  if (!oldest_mail(g, key)) return 0;
  tr__mail *mail = oldest_mail(g, key);
  atomic_store_explicit(&mail->joined, g->epoch, memory_order_relaxed);
  return 1;
}

static tr_status follow(tr_group *g, uint64_t key) {
  tr__ladder ladder;
  tr__ladder_begin(&ladder, TR__CREATE, g, g->base, 0);
  tr_status status = TR_OK;
  while (status == TR_OK && !find_mail(g, key)) {
    tr__progress(g->comm);
    status = tr__ladder_wait(&ladder, g->comm, g->ranks[0]);
  }
  tr__ladder_end(&ladder, g->comm);
  return status;
}

tr_status tr__slot_join(tr_group *g, const char *name) {
  uint64_t key = key_of(g, name);
  TR_TRY(g->index == 0 ? lead(g, key) : follow(g, key));
  tr__worked(g->comm);
  return TR_OK;
}

void tr__slot_leave(tr_group *g) {
  tr__job *job = g->comm->job;
  tr__mail *mail = tr__mail_of(job, g->ranks[0], g->slot);
  if (atomic_fetch_add(&mail->left, 1u) + 1u != (uint32_t)g->size) return;
  for (int i = 0; i < g->size; i++) atomic_fetch_and(&job->page[g->ranks[i]].slots, ~(1ull << g->slot));
}

// ---- the object ---------------------------------------------------------------------------------

// How many members from index i on are consecutive ranks: what they share lies side by side.
static int run_of(const tr_group *g, int i) {
  int n = 1;
  while (i + n < g->size && g->ranks[i + n] == g->ranks[i] + n) n++;
  return n;
}

// Which record an operation gets changes from step to step, and others are looked at only when a wait is long: their pages
// are faulted in here, not in a step. Threads have them in common, so each sees to its own.
static void map_pages(const tr_group *g) {
  const tr__job *job = g->comm->job;
  if (g->engine == &tr__engine_self) return;
  tr_memory_map_pages(job->control, sizeof *job->control);
  if (g->engine == &tr__engine_mpi) return;
  int threads = job->options.mode == TR_LAUNCH_THREADS, first = threads ? g->index : 0;
  for (int i = first, n; i < g->size && (!threads || i == first); i += n) {
    n = threads ? 1 : run_of(g, i);
    tr_memory_map_pages(&job->page[g->ranks[i]], (size_t)n * sizeof *job->page);
    tr_memory_map_pages(tr__ring_of(job, g->slot, g->ranks[i]), (size_t)n * sizeof(tr__ring));
  }
}

// Each of the first TR__RING transfers of a channel uses an entry that none has used yet. Of all channels of a group only a few are
// ever used, so the others get no pages.
void tr_group_expect(const tr_group *g, int peer) {
  const int own = g->ranks[g->index], other = g->ranks[peer];
  if (g->engine != &tr__engine_shm || own == other) return;
  tr_memory_map_pages(tr__channel_of(g->comm->job, g->slot, own, other), sizeof(tr__channel));
  tr_memory_map_pages(tr__channel_of(g->comm->job, g->slot, other, own), sizeof(tr__channel));
}

// One block: the group, then its arrays.
static tr_group *allocate(tr_comm *comm, const int *ranks, int n, const char *name) {
  size_t count = (size_t)n;
  tr_group *g = calloc(1, sizeof *g + 7 * count * sizeof(uint32_t));
  if (!g) return NULL;
  uint32_t *words = (uint32_t *)(void *)(g + 1);
  g->send_next = words;
  g->send_posted = words + count;
  g->recv_next = words + 2 * count;
  g->matched = words + 3 * count;
  g->matched_bits = words + 4 * count;
  g->granting = words + 5 * count;
  g->ranks = (int *)(void *)(words + 6 * count);
  memcpy(g->ranks, ranks, count * sizeof *ranks);
  g->comm = comm;
  g->size = n;
  g->index = -1;
  for (int i = 0; i < n; i++)
    if (ranks[i] == comm->rank) g->index = i;
  const int mates = comm->job->mates;
  while (mates && ranks[g->first] / mates != comm->rank / mates) g->first++;
  g->engine = n == 1 ? &tr__engine_self : comm->job->net && tr_group_on_one_host(g) ? &tr__engine_shm : comm->engine;
  g->base = g->next = g->ended = g->all_ended = comm->first_sequence;
  for (size_t i = 0; i < 4 * count; i++) words[i] = g->base;
  snprintf(g->name, sizeof g->name, "%s", name);
  return g;
}

static tr_status check_members(tr_comm *comm, const int *ranks, int n, const char *name) {
  int own = 0;
  unsigned char seen[TR__RANKS] = {0};
  if (!name || !ranks || n < 1 || n > comm->job->options.nrank)
    return tr_error(TR_ERR_USAGE, "group '%s' of %d ranks: needs a name and 1 to %d ranks", name ? name : "", n,
                    comm->job->options.nrank);
  for (int i = 0; i < n; i++) {
    if (ranks[i] < 0 || ranks[i] >= comm->job->options.nrank || seen[ranks[i]])
      return tr_error(TR_ERR_USAGE, "group '%s': rank %d is listed twice or is not in the job (0 to %d are)", name,
                      ranks[i], comm->job->options.nrank - 1);
    seen[ranks[i]] = 1;
    own |= ranks[i] == comm->rank;
  }
  return own ? TR_OK
             : tr_error(TR_ERR_USAGE, "group '%s': rank %d creates it but is not listed in it", name, comm->rank);
}

tr_status tr__group_create_plain(tr_comm *comm, const int *ranks, int nrank, const char *name, tr_group **out) {
  tr_group *g = allocate(comm, ranks, nrank, name);
  if (!g) return tr_error(TR_ERR_MEMORY, "group '%s': no memory for %d ranks", name, nrank);
  tr_status status = g->engine->join ? g->engine->join(g, name) : TR_OK;
  if (status < 0) {
    free(g);
    return status;
  }
  map_pages(g);
  *out = g;
  return TR_OK;
}

// Scripts are kept where the engine has no other way, or the environment demands them.
static tr_status create_strands(tr_group *g) {
  int demanded = g->engine == &tr__engine_mpi || (g->engine->transport && tr__choice_forces(g->comm->choice));
  return demanded ? tr__strands_create(g) : TR_OK;
}

tr_status tr_group_create(tr_comm *comm, const int *ranks, int nrank, const char *name, tr_group **out) {
  tr_group *g;
  TR_TRY(check_members(comm, ranks, nrank, name));
  TR_TRY(tr_comm_check(comm));
  TR_TRY(tr__group_create_plain(comm, ranks, nrank, name, &g));
  tr_status status = create_strands(g);
  if (status < 0)
    tr_group_destroy(g);
  else
    *out = g;
  return status;
}

tr_status tr__group_world(tr_comm *comm, tr_group **out) {
  int ranks[TR__RANKS];
  for (int i = 0; i < comm->job->options.nrank; i++) ranks[i] = i;
  tr_group *g = allocate(comm, ranks, comm->job->options.nrank, "world");
  if (!g) return tr_error(TR_ERR_MEMORY, "no memory for the group of all %d ranks", comm->job->options.nrank);
  g->epoch = 1; // slot 0, prepared by the launcher
  map_pages(g);
  tr_status status = create_strands(g);
  if (status < 0)
    tr__group_free(g);
  else
    *out = g;
  return status;
}

tr_status tr_group_shared(tr_group *g, size_t nbyte, void **out) {
  if (!tr_group_on_one_host(g))
    return tr_error(TR_ERR_USAGE, "group '%s' has no shared memory: its ranks are on several hosts", g->name);
  void *memory = NULL;
  char why[256] = "";
  if (g->index == 0) {
    memory = tr_arena_alloc(&g->comm->arena, nbyte);
    if (!memory) snprintf(why, sizeof why, "%s", tr_status_text());
  }
  TR_TRY(tr_group_broadcast(g, &memory, sizeof memory, TR_U8, 0, NULL)); // arenas lie at equal addresses in all ranks
  *out = memory;
  if (memory || nbyte == 0) return TR_OK;
  return tr_error(TR_ERR_MEMORY, "group '%s' has no room for %zu shared bytes in the arena of rank %d%s%s", g->name,
                  nbyte, g->ranks[0], *why ? ": " : "", why);
}

static int is_busy(const tr_group *g) {
  for (const tr_request *r = g->comm->head; r; r = r->next)
    if (r->group == g) return 1;
  return 0;
}

// What operations under way still receive into stays, where nobody but MPI knows when they end.
static void destroy_strands(tr_group *g, int leave) {
  if (g->engine != &tr__engine_mpi || !is_busy(g)) tr__strands_destroy(g, leave);
}

void tr__group_free(tr_group *g) {
  destroy_strands(g, 0);
  tr_request *next;
  for (tr_request *r = g->comm->head; r; r = next) {
    next = r->next;
    if (r->group != g) continue;
    if (g->engine->drop) g->engine->drop(r);
    tr__request_unlink(r);
  }
  while (g->blocks) {
    void *block = g->blocks;
    memcpy(&g->blocks, block, sizeof g->blocks); // every block begins with the address of the next
    free(block);
  }
  free(g);
}

void tr_group_destroy(tr_group *g) {
  if (!g || g == g->comm->world) return;
  for (tr_request *r = g->comm->head; r; r = r->next)
    if (r->group == g && !tr__aborted(g->comm->job)) {
      tr_log_error("group '%s' is destroyed while its %s #%u is under way", g->name, tr__kind_name(r->kind),
                   r->seq - g->base + 1);
      break;
    }
  destroy_strands(g, 1);
  if (g->engine->leave) g->engine->leave(g);
  tr__group_free(g);
}
