/* What crates/fabric/src/verbs/sys.rs writes down of libibverbs' structures, compared with the header of this machine: it compiles, or not. */
#include <infiniband/verbs.h>
#include <stddef.h>

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define AT(type, field, byte) _Static_assert(offsetof(struct type, field) == (byte), #type "." #field)

AT(ibv_context, ops.poll_cq, 96);
AT(ibv_context, ops.req_notify_cq, 104);
AT(ibv_context, ops.post_send, 208);
AT(ibv_context, ops.post_recv, 216);
AT(ibv_cq, context, 0);
AT(ibv_qp, context, 0);
AT(ibv_qp, qp_num, 52);
AT(ibv_mr, lkey, 36);
AT(ibv_mr, rkey, 40);
AT(ibv_comp_channel, fd, 8);
SIZE(ibv_device_attr, 232);
AT(ibv_device_attr, max_qp_wr, 112);
AT(ibv_device_attr, max_cqe, 132);
AT(ibv_device_attr, max_qp_rd_atom, 144);
AT(ibv_device_attr, atomic_cap, 164);
AT(ibv_device_attr, phys_port_cnt, 227);
_Static_assert(sizeof(struct ibv_port_attr) <= 68, "ibv_port_attr");
AT(ibv_port_attr, state, 0);
AT(ibv_port_attr, active_mtu, 8);
AT(ibv_port_attr, gid_tbl_len, 12);
AT(ibv_port_attr, lid, 34);
AT(ibv_port_attr, link_layer, 46);
SIZE(ibv_ah_attr, 32);
AT(ibv_ah_attr, grh.sgid_index, 20);
AT(ibv_ah_attr, dlid, 24);
AT(ibv_ah_attr, is_global, 29);
AT(ibv_ah_attr, port_num, 30);
SIZE(ibv_qp_cap, 20);
SIZE(ibv_qp_init_attr, 64);
AT(ibv_qp_init_attr, cap, 32);
AT(ibv_qp_init_attr, qp_type, 52);
SIZE(ibv_qp_attr, 144);
AT(ibv_qp_attr, rq_psn, 20);
AT(ibv_qp_attr, sq_psn, 24);
AT(ibv_qp_attr, dest_qp_num, 28);
AT(ibv_qp_attr, qp_access_flags, 32);
AT(ibv_qp_attr, ah_attr, 56);
AT(ibv_qp_attr, max_rd_atomic, 126);
AT(ibv_qp_attr, min_rnr_timer, 128);
AT(ibv_qp_attr, port_num, 129);
AT(ibv_qp_attr, timeout, 130);
AT(ibv_qp_attr, retry_cnt, 131);
AT(ibv_qp_attr, rnr_retry, 132);
SIZE(ibv_sge, 16);
SIZE(ibv_send_wr, 128);
AT(ibv_send_wr, opcode, 28);
AT(ibv_send_wr, send_flags, 32);
AT(ibv_send_wr, imm_data, 36);
AT(ibv_send_wr, wr.rdma.remote_addr, 40);
AT(ibv_send_wr, wr.rdma.rkey, 48);
AT(ibv_send_wr, wr.atomic.compare_add, 48);
AT(ibv_send_wr, wr.atomic.rkey, 64);
SIZE(ibv_recv_wr, 32);
SIZE(ibv_wc, 48);
AT(ibv_wc, status, 8);
AT(ibv_wc, opcode, 12);
AT(ibv_wc, imm_data, 24);
AT(ibv_wc, qp_num, 28);
AT(ibv_wc, wc_flags, 36);

_Static_assert(IBV_PORT_ACTIVE == 4 && IBV_QPT_RC == 2 && IBV_LINK_LAYER_ETHERNET == 2, "kinds");
_Static_assert(IBV_ACCESS_LOCAL_WRITE == 1 && IBV_ACCESS_REMOTE_WRITE == 2 && IBV_ACCESS_REMOTE_READ == 4, "access");
_Static_assert(IBV_ACCESS_REMOTE_ATOMIC == 8, "access");
_Static_assert(IBV_QPS_INIT == 1 && IBV_QPS_RTR == 2 && IBV_QPS_RTS == 3 && IBV_QPS_ERR == 6, "states");
_Static_assert(IBV_QP_STATE == 1 && IBV_QP_ACCESS_FLAGS == 1 << 3 && IBV_QP_PKEY_INDEX == 1 << 4, "attributes");
_Static_assert(IBV_QP_PORT == 1 << 5 && IBV_QP_AV == 1 << 7 && IBV_QP_PATH_MTU == 1 << 8, "attributes");
_Static_assert(IBV_QP_TIMEOUT == 1 << 9 && IBV_QP_RETRY_CNT == 1 << 10 && IBV_QP_RNR_RETRY == 1 << 11, "attributes");
_Static_assert(IBV_QP_RQ_PSN == 1 << 12 && IBV_QP_MAX_QP_RD_ATOMIC == 1 << 13, "attributes");
_Static_assert(IBV_QP_MIN_RNR_TIMER == 1 << 15 && IBV_QP_SQ_PSN == 1 << 16, "attributes");
_Static_assert(IBV_QP_MAX_DEST_RD_ATOMIC == 1 << 17 && IBV_QP_DEST_QPN == 1 << 20, "attributes");
_Static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_RDMA_WRITE_WITH_IMM == 1 && IBV_WR_RDMA_READ == 4, "requests");
_Static_assert(IBV_WR_ATOMIC_FETCH_AND_ADD == 6 && IBV_SEND_SIGNALED == 2, "requests");
_Static_assert(IBV_WC_SUCCESS == 0 && IBV_WC_WR_FLUSH_ERR == 5 && IBV_WC_RDMA_WRITE == 1, "completions");
_Static_assert(IBV_WC_RDMA_READ == 2 && IBV_WC_FETCH_ADD == 4 && IBV_WC_RECV_RDMA_WITH_IMM == 129, "completions");
_Static_assert(IBV_WC_WITH_IMM == 2 && IBV_ATOMIC_NONE == 0, "completions");
