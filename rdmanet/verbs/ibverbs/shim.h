//go:build verbs

#ifndef LEDGERD_IBVERBS_SHIM_H
#define LEDGERD_IBVERBS_SHIM_H

#include <infiniband/verbs.h>
#include <stdint.h>

// One work request; mirrored by the Go type Request.
struct shim_request {
	uint64_t id;
	uint64_t local;
	uint64_t remote;
	uint32_t length;
	uint32_t local_key;
	uint32_t remote_key;
	uint32_t immediate;
	uint32_t opcode;
	uint32_t flags;
};

// A memory window and the memory to bind it to. A request to bind it has this struct's address in
// remote and the window's next key in remote_key.
struct shim_window {
	struct ibv_mw *window;
	struct ibv_mr *memory;
	int access;
};

// One completion; mirrored by the Go type Completion.
struct shim_completion {
	uint64_t id;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor;
	uint32_t immediate;
};

// The address of a queue pair; mirrored by the Go type Address.
struct shim_address {
	uint32_t number;
	uint32_t sequence;
	uint32_t lid;
	uint32_t mtu;
	uint8_t gid[16];
};

// How long a queue pair retries; mirrored by the Go type Patience.
struct shim_patience {
	uint32_t timeout;
	uint32_t retries;
	uint32_t not_ready_retries;
	uint32_t not_ready_timer;
	uint32_t reads;
};

int shim_post_send(struct ibv_qp *pair, struct shim_request *requests, int count, int *posted);
int shim_post_receive(struct ibv_qp *pair, uint64_t id, int count);
int shim_poll(struct ibv_cq *queue, struct shim_completion *completions, int count);
int shim_port(struct ibv_context *context, int port, int *active, int *lid, int *mtu,
	int *ethernet);
int shim_gid(struct ibv_context *context, int port, int index, uint8_t *gid, int *type,
	unsigned *interface_index);
int shim_event(struct ibv_comp_channel *channel);
int shim_nonblocking(int fd);
struct ibv_qp *shim_create_pair(struct ibv_pd *domain, struct ibv_cq *send,
	struct ibv_cq *receive, int send_depth, int receive_depth, int *inline_bytes);
int shim_init(struct ibv_qp *pair, int port, int access);
int shim_receive(struct ibv_qp *pair, int port, int gid_index, int ethernet,
	struct shim_address *remote, struct shim_patience *patience);
int shim_send(struct ibv_qp *pair, uint32_t sequence, struct shim_patience *patience);
int shim_access(struct ibv_qp *pair, int access);
int shim_fail(struct ibv_qp *pair);
struct ibv_mw *shim_window(struct ibv_pd *domain);
int shim_free_window(struct ibv_mw *window);
uint32_t shim_next_key(struct ibv_mw *window);

#endif
