#include "millstream/workers/message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <limits>
#include <string>
#include <thread>

#include "millstream/core/error.h"
#include "millstream/workers/descriptor.h"

namespace millstream {
namespace {

struct Sockets {
  Sockets() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours = Descriptor(ends[0]);
    theirs = Descriptor(ends[1]);
  }
  Descriptor ours, theirs;
};

Task some_task() {
  Task task;
  task.indices = {5, -1, std::int64_t{1} << 40};
  task.seeds = {1, std::numeric_limits<std::uint64_t>::max(), 0};
  task.input = {{{4096, 8192, 64}, 24}};
  task.output = {{{0, 4096, 0}, 8}, {{8192, 4096, 1}, 0}};
  task.host_values = {"text", "", std::string("\0b", 2)};
  return task;
}

TEST(Message, TasksRoundTrip) {
  const Task task = some_task();
  const Task again = decoded_task(encoded(task));
  EXPECT_EQ(again.indices, task.indices);
  EXPECT_EQ(again.seeds, task.seeds);
  ASSERT_EQ(again.input.size(), 1u);
  EXPECT_EQ(again.input[0].location.offset, 4096);
  EXPECT_EQ(again.input[0].location.bytes, 8192);
  EXPECT_EQ(again.input[0].location.at, 64);
  EXPECT_EQ(again.input[0].stride, 24);
  ASSERT_EQ(again.output.size(), 2u);
  EXPECT_EQ(again.output[1].location.at, 1);
  EXPECT_EQ(again.host_values, task.host_values);
  EXPECT_TRUE(decoded_task(encoded(Task{})).indices.empty());
}

TEST(Message, HostValuesRoundTrip) {
  const std::vector<std::string> values = some_task().host_values;
  EXPECT_EQ(decoded_host_values(encoded(values)), values);
  EXPECT_TRUE(decoded_host_values(encoded(std::vector<std::string>())).empty());
  const std::string body = encoded(values);
  for (std::size_t size = 0; size < body.size(); ++size) {
    EXPECT_THROW(decoded_host_values(std::string_view(body).substr(0, size)),
                 DataError);
  }
}

TEST(Message, FailuresRoundTrip) {
  for (const bool transient : {false, true}) {
    const Failure failure{7, "no such thing", std::string("\0bytes", 6), transient};
    const Failure again = decoded_failure(encoded(failure));
    EXPECT_EQ(again.row, 7);
    EXPECT_EQ(again.message, failure.message);
    EXPECT_EQ(again.bytes, failure.bytes);
    EXPECT_EQ(again.transient, transient);
  }
}

TEST(Message, AFlagIsZeroOrOne) {
  std::string failure = encoded(Failure{1, "words", "bytes", true});
  failure.back() = 2;
  EXPECT_THROW(decoded_failure(failure), DataError);
}

TEST(Message, TruncatedMessagesAreRejectedAtEveryByte) {
  const std::string task = encoded(some_task());
  for (std::size_t size = 0; size < task.size(); ++size) {
    EXPECT_THROW(decoded_task(std::string_view(task).substr(0, size)), DataError);
  }
  const std::string failure = encoded(Failure{1, "words", "bytes", true});
  for (std::size_t size = 0; size < failure.size(); ++size) {
    EXPECT_THROW(decoded_failure(std::string_view(failure).substr(0, size)), DataError);
  }
}

TEST(Message, InvalidCountsAreRejected) {
  for (const std::int64_t count :
       {std::int64_t{-1}, std::int64_t{3}, std::numeric_limits<std::int64_t>::max(),
        std::int64_t{1} << 61}) {
    std::string body;
    MessageWriter(body).value(count);
    body.append(16, 'x');
    EXPECT_THROW(decoded_task(body), DataError) << count;
    EXPECT_THROW(decoded_host_values(body), DataError) << count;
  }
}

TEST(Message, InvalidHeadersAreRejected) {
  const auto header = [](std::uint32_t kind, std::int64_t bytes) {
    std::string raw;
    MessageWriter(raw).value(MessageHeader{static_cast<MessageKind>(kind), 0, bytes});
    return raw;
  };
  EXPECT_EQ(header_of(header(2, 10)).bytes, 10);
  EXPECT_THROW(header_of(header(0, 10)), DataError);
  EXPECT_THROW(header_of(header(6, 10)), DataError);
  EXPECT_THROW(header_of(header(2, -1)), DataError);
  EXPECT_THROW(header_of(header(2, std::int64_t{1} << 60)), DataError);
  EXPECT_THROW(header_of("short"), DataError);
}

TEST(Message, LongMessagesAreSentInPieces) {
  const Sockets sockets;
  const std::string body(3'000'000, 'b');  // more than a socket holds
  std::jthread sender([&] {
    EXPECT_TRUE(send_all(sockets.theirs.number(), framed(MessageKind::kDone, body)));
    EXPECT_TRUE(send_all(sockets.theirs.number(), framed(MessageKind::kReady, {})));
  });
  MessageKind kind;
  std::string got;
  ASSERT_TRUE(receive(sockets.ours.number(), kind, got));
  EXPECT_EQ(kind, MessageKind::kDone);
  EXPECT_EQ(got, body);
  ASSERT_TRUE(receive(sockets.ours.number(), kind, got));
  EXPECT_EQ(kind, MessageKind::kReady);
  EXPECT_TRUE(got.empty());
}

TEST(Message, AClosedConnectionIsNotAnError) {
  Sockets sockets;
  const std::string message = framed(MessageKind::kDone, "half of it is sent");
  ASSERT_TRUE(send_all(sockets.theirs.number(), message.substr(0, 20)));
  sockets.theirs = Descriptor();
  MessageKind kind;
  std::string got;
  EXPECT_FALSE(receive(sockets.ours.number(), kind, got));
  EXPECT_FALSE(receive(sockets.ours.number(), kind, got));
  EXPECT_FALSE(send_all(sockets.ours.number(), message));  // and no SIGPIPE
}

TEST(Descriptor, ClosesItsDescriptorOnce) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Descriptor read_end(ends[0]);
  const Descriptor write_end(ends[1]);
  ASSERT_TRUE(read_end.lift());
  EXPECT_GE(read_end.number(), Descriptor::kLifted);
  EXPECT_EQ(fcntl(ends[0], F_GETFD), -1);
  const int lifted = read_end.number();
  {
    const Descriptor moved(std::move(read_end));
    EXPECT_FALSE(read_end);
    EXPECT_EQ(moved.number(), lifted);
  }
  EXPECT_EQ(fcntl(lifted, F_GETFD), -1);
  Descriptor none;
  EXPECT_FALSE(none.lift());
}

}  // namespace
}  // namespace millstream
