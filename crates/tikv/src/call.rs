//! One call of a server.

use std::time::Duration;

use prost::Message;
use tokio::time::timeout;
use tonic::{Request, Status, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

use crate::error::Error;

/// Longest wait for an answer. The client library tries again afterwards.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Largest answer: a page of whole chunks.
const MAX_ANSWER: usize = 256 << 20;

/// Makes one call.
pub(crate) async fn call<Q, A>(channel: &Channel, method: &'static str, request: Q) -> Result<A, Error>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let call = async {
        let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(MAX_ANSWER);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let path = PathAndQuery::from_static(method);
        grpc.unary(Request::new(request), path, ProstCodec::default()).await
    };
    let late = || Err(Status::deadline_exceeded(format!("no answer within {} s", TIMEOUT.as_secs())));
    let answer = timeout(TIMEOUT, call).await.unwrap_or_else(|_| late());
    answer.map(tonic::Response::into_inner).map_err(|status| Error::Call(Box::new(status)))
}
