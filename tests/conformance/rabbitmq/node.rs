//! What a test asks of a RabbitMQ server that AMQP doesn't tell: of its Erlang node, in Erlang. None of it goes through the
//! product.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

/// Reads expressions line by line, has the server evaluate each, and prints its value on a line.
const LOOP: &str = r#"
    Ask = fun Ask() -> case io:get_line("") of eof -> halt(); Line ->
        {ok, Tokens, _} = erl_scan:string(Line),
        {ok, Expressions} = erl_parse:parse_exprs(Tokens),
        Said = case rpc:call(list_to_atom("rabbit@localhost"), erl_eval, exprs, [Expressions, []]) of
            {value, Value, _} -> Value; Failed -> {failed, Failed} end,
        io:format("~w~n", [Said]), Ask() end end, Ask()."#;

/// A server's node, that `scripts/services` has started.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    mapper: u16,
    shell: Arc<Mutex<Option<Shell>>>,
}

#[derive(Debug)]
struct Shell {
    process: Child,
    into: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Shell {
    fn start(mapper: u16) -> Self {
        let name = format!("test-{:08x}@localhost", fastrand::u32(..));
        let mut command = Command::new("erl");
        command.args(["-noshell", "-hidden", "-sname", &name, "-setcookie", "inboxed", "-start_epmd", "false"]);
        command.args(["-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-eval", LOOP]);
        command.env("ERL_EPMD_PORT", mapper.to_string()).env("HOME", std::env::temp_dir());
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Erlang, as RabbitMQ has it");
        let (into, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, into, from }
    }

    fn ask(&mut self, expression: &str) -> Option<String> {
        writeln!(self.into, "{}.", expression.replace('\n', " ")).ok()?;
        let mut said = String::new();
        self.from.read_line(&mut said).ok()?;
        let said = said.trim().to_owned();
        (!said.is_empty() && !said.contains("nodedown")).then_some(said)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Node {
    /// The node of the server at this URL.
    pub(crate) fn of(url: &str) -> Self {
        let port = url.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let port = port.expect("the URL of a server that `scripts/services start rabbitmq rabbitmq-short` has started");
        Self { mapper: port + 4_000, shell: Arc::default() }
    }

    /// The value of an expression, as Erlang prints it; `None` while the server isn't there.
    pub(crate) fn try_ask(&self, expression: &str) -> Option<String> {
        let mut shell = self.shell.lock().unwrap();
        let said = shell.get_or_insert_with(|| Shell::start(self.mapper)).ask(expression);
        if said.is_none() {
            *shell = None;
        }
        said
    }

    /// The same of a server that is there.
    pub(crate) async fn ask(&self, expression: impl Into<String>) -> String {
        let (node, expression) = (self.clone(), expression.into());
        // After a restart the shell has to be told twice.
        let said = tokio::task::spawn_blocking(move || (0..5).find_map(|_| node.try_ask(&expression)));
        said.await.unwrap().expect("a server that answers")
    }

    /// How many messages of a queue aren't acknowledged, those in its delay queues included. The delay queues are counted
    /// before and after, so that none is missed on its way.
    pub(crate) async fn backlog(&self, queue: &str) -> usize {
        let count = self.ask(format!(
            r#"Total = fun(Name) ->
                   case rabbit_amqqueue:lookup(Name) of
                       {{ok, Queue}} ->
                           case ra:leader_query(amqqueue:get_pid(Queue), fun rabbit_fifo:query_messages_total/1) of
                               {{ok, {{_, Count}}, _}} -> Count;
                               _ -> 1
                           end;
                       _ -> 0
                   end end,
               Delays = [Name || Name <- rabbit_amqqueue:list_names(<<"/">>),
                   string:prefix(element(4, Name), <<"{queue}.retry.">>) =/= nomatch],
               Own = rabbit_misc:r(<<"/">>, queue, <<"{queue}">>),
               lists:sum(lists:map(Total, Delays ++ [Own] ++ Delays))"#
        ));
        let count = count.await;
        count.parse().unwrap_or_else(|_| panic!("{count}"))
    }

    /// The certificate that it shows under TLS.
    #[cfg(feature = "rabbitmq-tls")]
    pub(crate) async fn certificate(&self) -> Vec<u8> {
        let read = "{ok, Options} = application:get_env(rabbit, ssl_options),
            {ok, Bytes} = file:read_file(proplists:get_value(certfile, Options)), Bytes";
        let said = self.ask(read).await;
        let bytes = said.trim_start_matches("<<").trim_end_matches(">>").split(',');
        bytes.map(|byte| byte.parse().expect("the bytes of a certificate")).collect()
    }

    /// Deletes queues and exchanges whose names begin so.
    pub(crate) fn clean(&self, prefix: &str) {
        let said = self.try_ask(&format!(
            r#"Ours = fun(Name) -> string:prefix(element(4, Name), <<"{prefix}">>) =/= nomatch end,
               [begin {{ok, Queue}} = rabbit_amqqueue:lookup(Name), rabbit_amqqueue:delete(Queue, false, false, <<"test">>) end
                   || Name <- rabbit_amqqueue:list_names(<<"/">>), Ours(Name)],
               [rabbit_exchange:delete(Name, false, <<"test">>) || Name <- rabbit_exchange:list_names(), Ours(Name)],
               ok"#
        ));
        assert!(said.is_none_or(|said| said == "ok"));
    }
}
