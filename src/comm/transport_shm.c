// SPDX-License-Identifier: MIT
// The transport over shared memory: transfers are sends and receives on the channels of a shadow group.
//
// The shadow group has the same ranks as the group, and nobody else sends on it, so what algorithms send never meets a user's
// transfers. The lane is the tag: the courier matches transfers in order per tag. A transfer's handle is its request.
#include "strands_internal.h"

static tr_status shm_send(tr_group *group, int peer, int lane, const void *data, size_t nbyte,
                          tr__transfer *transfer) {
  *transfer = (tr__transfer){.nbyte = nbyte, .peer = peer};
  return tr_group_send(group->strands->shadow, peer, lane, data, nbyte, (tr_request **)&transfer->handle);
}

static tr_status shm_recv(tr_group *group, int peer, int lane, void *data, size_t nbyte, tr__transfer *transfer) {
  *transfer = (tr__transfer){.nbyte = nbyte, .peer = peer};
  return tr_group_recv(group->strands->shadow, peer, lane, data, nbyte, (tr_request **)&transfer->handle);
}

// A request under way is stepped with all others of the rank; it is only looked at here.
static tr_status shm_test(tr_group *group, tr__transfer *transfer) {
  tr_request *request = transfer->handle;
  (void)group;
  if (request->status == TR_PENDING) return TR_PENDING;
  transfer->handle = NULL;
  return tr_request_test(request);
}

// The requests are under way on their own and end with the shadow group.
static void shm_drop(tr_group *group, tr__transfer *transfer) {
  (void)group;
  transfer->handle = NULL;
}

const tr__transport tr__transport_shm = {
    .name = "shm",
    .send = shm_send,
    .recv = shm_recv,
    .test = shm_test,
    .drop = shm_drop,
};
