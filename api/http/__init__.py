"""What every server here needs: a socket, responses that notice when their client goes, errors as OpenAI words them."""
