//go:build verbs

#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

// The largest number of work requests passed to the library in one list.
#define CHAIN 64

int shim_post_send(struct ibv_qp *pair, struct shim_request *requests, int count, int *posted) {
	struct ibv_send_wr chain[CHAIN], *bad;
	struct ibv_sge pieces[CHAIN];
	*posted = 0;
	while (count > 0) {
		int n = count < CHAIN ? count : CHAIN;
		memset(chain, 0, sizeof(chain[0]) * n);
		for (int i = 0; i < n; i++) {
			struct shim_request *r = &requests[i];
			pieces[i].addr = r->local;
			pieces[i].length = r->length;
			pieces[i].lkey = r->local_key;
			chain[i].wr_id = r->id;
			chain[i].next = i + 1 < n ? &chain[i + 1] : NULL;
			chain[i].sg_list = &pieces[i];
			chain[i].num_sge = r->length > 0;
			chain[i].opcode = r->opcode;
			chain[i].send_flags = r->flags;
			chain[i].imm_data = r->immediate;
			switch (chain[i].opcode) {
			case IBV_WR_BIND_MW: {
				struct shim_window *w = (struct shim_window *)(uintptr_t)r->remote;
				chain[i].bind_mw.mw = w->window;
				chain[i].bind_mw.rkey = r->remote_key;
				chain[i].bind_mw.bind_info.mr = w->memory;
				chain[i].bind_mw.bind_info.addr = (uintptr_t)w->memory->addr;
				chain[i].bind_mw.bind_info.length = w->memory->length;
				chain[i].bind_mw.bind_info.mw_access_flags = w->access;
				break;
			}
			case IBV_WR_LOCAL_INV:
				chain[i].invalidate_rkey = r->remote_key;
				break;
			default:
				chain[i].wr.rdma.remote_addr = r->remote;
				chain[i].wr.rdma.rkey = r->remote_key;
			}
		}
		int failed = ibv_post_send(pair, chain, &bad);
		if (failed) {
			*posted += bad ? bad - chain : 0;
			return failed;
		}
		*posted += n;
		requests += n;
		count -= n;
	}
	return 0;
}

int shim_post_receive(struct ibv_qp *pair, uint64_t id, int count) {
	struct ibv_recv_wr chain[CHAIN], *bad;
	while (count > 0) {
		int n = count < CHAIN ? count : CHAIN;
		memset(chain, 0, sizeof(chain[0]) * n);
		for (int i = 0; i < n; i++) {
			chain[i].wr_id = id;
			chain[i].next = i + 1 < n ? &chain[i + 1] : NULL;
		}
		int failed = ibv_post_recv(pair, chain, &bad);
		if (failed) {
			return failed;
		}
		count -= n;
	}
	return 0;
}

int shim_poll(struct ibv_cq *queue, struct shim_completion *completions, int count) {
	struct ibv_wc got[CHAIN];
	int n = ibv_poll_cq(queue, count < CHAIN ? count : CHAIN, got);
	for (int i = 0; i < n; i++) {
		completions[i].id = got[i].wr_id;
		completions[i].status = got[i].status;
		completions[i].opcode = got[i].opcode;
		completions[i].vendor = got[i].vendor_err;
		completions[i].immediate = got[i].imm_data;
	}
	return n;
}

int shim_port(struct ibv_context *context, int port, int *active, int *lid, int *mtu,
	int *ethernet) {
	struct ibv_port_attr attributes;
	memset(&attributes, 0, sizeof(attributes));
	int failed = ibv_query_port(context, port, &attributes);
	if (failed) {
		return failed;
	}
	*active = attributes.state == IBV_PORT_ACTIVE;
	*lid = attributes.lid;
	*mtu = attributes.active_mtu;
	*ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
	return 0;
}

int shim_gid(struct ibv_context *context, int port, int index, uint8_t *gid, int *type,
	unsigned *interface_index) {
	struct ibv_gid_entry entry;
	int failed = ibv_query_gid_ex(context, port, index, &entry, 0);
	if (failed) {
		return failed;
	}
	memcpy(gid, entry.gid.raw, 16);
	*type = entry.gid_type;
	*interface_index = entry.ndev_ifindex;
	return 0;
}

int shim_event(struct ibv_comp_channel *channel) {
	struct ibv_cq *queue;
	void *context;
	if (ibv_get_cq_event(channel, &queue, &context)) {
		return errno;
	}
	ibv_ack_cq_events(queue, 1);
	return 0;
}

int shim_nonblocking(int fd) {
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		return errno;
	}
	return 0;
}

struct ibv_qp *shim_create_pair(struct ibv_pd *domain, struct ibv_cq *send,
	struct ibv_cq *receive, int send_depth, int receive_depth, int *inline_bytes) {
	struct ibv_qp_init_attr attributes;
	memset(&attributes, 0, sizeof(attributes));
	attributes.send_cq = send;
	attributes.recv_cq = receive;
	attributes.qp_type = IBV_QPT_RC;
	attributes.cap.max_send_wr = send_depth;
	attributes.cap.max_recv_wr = receive_depth;
	attributes.cap.max_send_sge = 1;
	attributes.cap.max_recv_sge = 1;
	attributes.cap.max_inline_data = *inline_bytes;
	struct ibv_qp *pair = ibv_create_qp(domain, &attributes);
	*inline_bytes = attributes.cap.max_inline_data;
	return pair;
}

int shim_init(struct ibv_qp *pair, int port, int access) {
	struct ibv_qp_attr attributes;
	memset(&attributes, 0, sizeof(attributes));
	attributes.qp_state = IBV_QPS_INIT;
	attributes.port_num = port;
	attributes.qp_access_flags = access;
	return ibv_modify_qp(pair, &attributes,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int shim_receive(struct ibv_qp *pair, int port, int gid_index, int ethernet,
	struct shim_address *remote, struct shim_patience *patience) {
	struct ibv_qp_attr attributes;
	memset(&attributes, 0, sizeof(attributes));
	attributes.qp_state = IBV_QPS_RTR;
	attributes.path_mtu = remote->mtu;
	attributes.dest_qp_num = remote->number;
	attributes.rq_psn = remote->sequence;
	attributes.max_dest_rd_atomic = patience->reads;
	attributes.min_rnr_timer = patience->not_ready_timer;
	attributes.ah_attr.port_num = port;
	attributes.ah_attr.dlid = remote->lid;
	if (ethernet || remote->lid == 0) {
		attributes.ah_attr.is_global = 1;
		attributes.ah_attr.grh.hop_limit = 64;
		attributes.ah_attr.grh.sgid_index = gid_index;
		memcpy(attributes.ah_attr.grh.dgid.raw, remote->gid, 16);
	}
	return ibv_modify_qp(pair, &attributes,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int shim_send(struct ibv_qp *pair, uint32_t sequence, struct shim_patience *patience) {
	struct ibv_qp_attr attributes;
	memset(&attributes, 0, sizeof(attributes));
	attributes.qp_state = IBV_QPS_RTS;
	attributes.sq_psn = sequence;
	attributes.timeout = patience->timeout;
	attributes.retry_cnt = patience->retries;
	attributes.rnr_retry = patience->not_ready_retries;
	attributes.max_rd_atomic = patience->reads;
	return ibv_modify_qp(pair, &attributes,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int shim_access(struct ibv_qp *pair, int access) {
	struct ibv_qp_attr attributes;
	memset(&attributes, 0, sizeof(attributes));
	attributes.qp_access_flags = access;
	return ibv_modify_qp(pair, &attributes, IBV_QP_ACCESS_FLAGS);
}

int shim_fail(struct ibv_qp *pair) {
	struct ibv_qp_attr attributes;
	memset(&attributes, 0, sizeof(attributes));
	attributes.qp_state = IBV_QPS_ERR;
	return ibv_modify_qp(pair, &attributes, IBV_QP_STATE);
}

struct ibv_mw *shim_window(struct ibv_pd *domain) { return ibv_alloc_mw(domain, IBV_MW_TYPE_2); }

int shim_free_window(struct ibv_mw *window) { return ibv_dealloc_mw(window); }

uint32_t shim_next_key(struct ibv_mw *window) { return ibv_inc_rkey(window->rkey); }
